/** Keyboard shortcuts: one list for views, tests and documentation. */

import type { StorageScope } from "../session/storage-scope";
import { StoredChoice } from "../session/stored-choice";
import { strings, type Strings } from "../strings";

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

const SEND = SHORTCUTS[0];

export type KeyPress = Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">;

const IS_MAC = /Mac|iP(hone|ad|od)/.test(navigator.userAgent);

/** Shortcuts as the user has set them. Those of a single sign can be switched off, since voice input and tremor press
 * them by accident; and so can all outside of text fields and lists. */
export class ShortcutSettings {
  /** `modified`: only those with Control or Command. */
  readonly mode: StoredChoice<"all" | "modified" | "none">;
  /** With Control or Command, Enter alone begins a line. */
  readonly sendKey: StoredChoice<"Enter" | "Mod+Enter">;

  constructor(storage: StorageScope) {
    this.mode = new StoredChoice(storage, "shortcuts", ["all", "modified", "none"]);
    this.sendKey = new StoredChoice(storage, "send key", ["Enter", "Mod+Enter"]);
  }

  isPressed(name: Shortcut["name"], pressed: KeyPress): boolean {
    const mode = this.mode.signal.peek();
    const isSingle = !pressed.ctrlKey && !pressed.metaKey && pressed.key.length === 1;
    return mode !== "none" && (mode === "all" || !isSingle) && isShortcut(name, pressed);
  }

  /** Whether this key sends the message that is being written. */
  sends(pressed: KeyPress, isMac = IS_MAC): boolean {
    return this.keysOf(SEND).some((keys) => isPressed(keys, pressed, isMac));
  }

  keysOf({ name, keys }: Shortcut): readonly string[] {
    if (this.sendKey.value === "Enter") return keys;
    if (name === "send") return [this.sendKey.value];
    return name === "line" ? ["Enter", ...keys] : keys;
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
