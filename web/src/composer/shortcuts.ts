/** Keyboard shortcuts: one list for views, tests and documentation. */

export interface Shortcut {
  readonly name: string;
  /** Each key combination, as in `Mod+Shift+O`; `Mod` is Command on a Mac and Control elsewhere. */
  readonly keys: readonly [string, ...string[]];
  readonly what: string;
  /** Where it works. `anywhere`: outside of text fields, or with Control or Command everywhere. */
  readonly where: "writing" | "anywhere" | "list";
}

export const SHORTCUTS = [
  { name: "send", keys: ["Enter", "Mod+Enter"], what: "Send the message", where: "writing" },
  { name: "line", keys: ["Shift+Enter"], what: "Begin a new line", where: "writing" },
  { name: "stop", keys: ["Escape"], what: "Stop the answer and keep what it said", where: "writing" },
  { name: "discard", keys: ["Shift+Escape"], what: "Stop the answer and discard it", where: "writing" },
  { name: "recall", keys: ["ArrowUp"], what: "Bring back your last message, if nothing is written", where: "writing" },
  { name: "new", keys: ["Mod+Shift+O"], what: "New chat", where: "anywhere" },
  { name: "search", keys: ["/", "Mod+K"], what: "Search the chats", where: "anywhere" },
  { name: "write", keys: ["Mod+J"], what: "Go to where you write", where: "anywhere" },
  { name: "walk", keys: ["ArrowUp", "ArrowDown"], what: "Go from chat to chat", where: "list" },
  { name: "rename", keys: ["F2"], what: "Rename the chat", where: "list" },
  { name: "delete", keys: ["Delete"], what: "Delete the chat, if pressed twice", where: "list" },
  { name: "shortcuts", keys: ["?"], what: "Show or hide these shortcuts", where: "anywhere" },
] as const satisfies readonly Shortcut[];

type ShortcutName = (typeof SHORTCUTS)[number]["name"];

export type KeyPress = Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">;

const IS_MAC = /Mac|iP(hone|ad|od)/.test(navigator.userAgent);

export function isShortcut(name: ShortcutName, pressed: KeyPress, isMac = IS_MAC): boolean {
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

const SIGNS: Readonly<Record<string, string>> = { ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc", Delete: "Del" };

export function keyLabels(keys: string, isMac = IS_MAC): string[] {
  return keys.split("+").map((each) => (each === "Mod" ? (isMac ? "⌘" : "Ctrl") : (SIGNS[each] ?? each)));
}

/** Whether the target is a text field, where letters are text. */
export function isTextField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}
