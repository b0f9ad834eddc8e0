/** Keyboard shortcuts: one list for views, tests and documentation. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { StorageScope } from "../session/storage-scope";
import { strings, type Strings } from "../strings";

const SINGLE_KEYS = "single keys";

export interface Shortcut {
  readonly name: keyof Strings["shortcuts"]["actions"];
  /** Each key combination, as in `Mod+Shift+O`; `Mod` is Command on a Mac and Control elsewhere. */
  readonly keys: readonly [string, ...string[]];
  /** Where it works. `anywhere`: outside of text fields, or with Control or Command everywhere. */
  readonly where: "writing" | "anywhere" | "list";
}

export const SHORTCUTS = [
  { name: "send", keys: ["Enter", "Mod+Enter"], where: "writing" },
  { name: "line", keys: ["Shift+Enter"], where: "writing" },
  { name: "stop", keys: ["Escape"], where: "writing" },
  { name: "discard", keys: ["Shift+Escape"], where: "writing" },
  { name: "recall", keys: ["ArrowUp"], where: "writing" },
  { name: "new", keys: ["Mod+Shift+O"], where: "anywhere" },
  { name: "search", keys: ["/", "Mod+K"], where: "anywhere" },
  { name: "write", keys: ["Mod+J"], where: "anywhere" },
  { name: "walk", keys: ["ArrowUp", "ArrowDown"], where: "list" },
  { name: "rename", keys: ["F2"], where: "list" },
  { name: "delete", keys: ["Delete"], where: "list" },
  { name: "shortcuts", keys: ["?", "Mod+/"], where: "anywhere" },
] as const satisfies readonly Shortcut[];

export type KeyPress = Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">;

const IS_MAC = /Mac|iP(hone|ad|od)/.test(navigator.userAgent);

/** Shortcuts as the user has set them: those of a single sign can be switched off, since voice input and tremor press
 * them by accident. */
export class ShortcutSettings {
  readonly #storage: StorageScope;
  readonly #hasSingleKeys: Signal<boolean>;

  constructor(storage: StorageScope) {
    this.#storage = storage;
    this.#hasSingleKeys = signal(storage.get(SINGLE_KEYS) !== "off");
  }

  get hasSingleKeys(): ReadonlySignal<boolean> {
    return this.#hasSingleKeys;
  }

  useSingleKeys(isOn: boolean): void {
    this.#hasSingleKeys.value = isOn;
    this.#storage.set(SINGLE_KEYS, isOn ? null : "off");
  }

  isPressed(name: Shortcut["name"], pressed: KeyPress): boolean {
    const isSingle = !pressed.ctrlKey && !pressed.metaKey && pressed.key.length === 1;
    return (this.#hasSingleKeys.peek() || !isSingle) && isShortcut(name, pressed);
  }
}

export function isShortcut(name: Shortcut["name"], pressed: KeyPress, isMac = IS_MAC): boolean {
  const shortcut = SHORTCUTS.find((each) => each.name === name) as Shortcut;
  return shortcut.keys.some((keys) => isPressed(keys, pressed, isMac));
}

function isPressed(keys: string, { key, ctrlKey, metaKey, shiftKey, altKey }: KeyPress, isMac: boolean): boolean {
  const parts = keys.split("+");
  const last = parts.pop() as string;
  const isMod = parts.includes("Mod");
  // Which modifiers a sign like "?" or "/" needs depends on the keyboard.
  const isSign = last.length === 1 && !/[a-z0-9]/i.test(last);
  return (
    key.toLowerCase() === last.toLowerCase() &&
    (isMac ? metaKey : ctrlKey) === isMod &&
    !(isMac ? ctrlKey : metaKey) &&
    !altKey &&
    (isSign || shiftKey === parts.includes("Shift"))
  );
}

const ARROWS: Readonly<Record<string, string>> = { ArrowUp: "↑", ArrowDown: "↓" };

export function keyLabels(keys: string, isMac = IS_MAC): string[] {
  const names: Readonly<Record<string, string>> = strings.shortcuts.keys;
  return keys.split("+").map((each) => (isMac && each === "Mod" ? "⌘" : (ARROWS[each] ?? names[each] ?? each)));
}

/** Whether the target is a text field, where letters are text. */
export function isTextField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}
