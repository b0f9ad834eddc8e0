import { describe, expect, it } from "vitest";
import { MemoryStorage } from "../../src/browser/storage";
import { isShortcut, isTextField, keyLabels, SHORTCUTS, ShortcutSettings } from "../../src/composer/shortcuts";
import type { KeyPress } from "../../src/composer/shortcuts";
import { StorageScope } from "../../src/session/storage-scope";

const KEYS = { ctrlKey: false, metaKey: false, shiftKey: false, altKey: false };

function press(key: string, held: Partial<KeyPress> = {}): KeyPress {
  return { ...KEYS, key, ...held };
}

describe("shortcuts", () => {
  it("have unique keys in each place", () => {
    const all = SHORTCUTS.flatMap(({ keys, where }) => keys.map((each) => `${where} ${each}`));
    expect(new Set(all).size).toBe(all.length);
  });

  it("use Control, or Command on a Mac", () => {
    const control = press("O", { ctrlKey: true, shiftKey: true });
    const command = press("o", { metaKey: true, shiftKey: true });
    expect([isShortcut("new", control, false), isShortcut("new", control, true)]).toEqual([true, false]);
    expect([isShortcut("new", command, false), isShortcut("new", command, true)]).toEqual([false, true]);
  });

  it("do not match with extra modifiers", () => {
    expect(isShortcut("send", press("Enter"), false)).toBe(true);
    expect(isShortcut("send", press("Enter", { ctrlKey: true }), false)).toBe(true);
    expect(isShortcut("send", press("Enter", { shiftKey: true }), false)).toBe(false);
    expect(isShortcut("send", press("Enter", { altKey: true }), false)).toBe(false);
    expect(isShortcut("search", press("/", { ctrlKey: true }), false)).toBe(false);
  });

  it("match signs whatever modifiers type them", () => {
    expect(isShortcut("shortcuts", press("?", { shiftKey: true }), false)).toBe(true);
    expect(isShortcut("search", press("/", { shiftKey: true }), false)).toBe(true);
  });

  it("of a single key can be switched off, and stay so", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    const settings = new ShortcutSettings(storage);
    const slash = press("/");
    const control = press("/", { ctrlKey: true });
    expect([settings.isPressed("search", slash), settings.isPressed("shortcuts", control)]).toEqual([true, true]);
    settings.mode.choose("modified");
    for (const each of [settings, new ShortcutSettings(storage)]) {
      expect(each.mode.value).toBe("modified");
      expect([each.isPressed("search", slash), each.isPressed("shortcuts", press("?"))]).toEqual([false, false]);
      expect(each.isPressed("shortcuts", control)).toBe(true);
    }
    settings.mode.choose("all");
    expect(new ShortcutSettings(storage).isPressed("search", slash)).toBe(true);
    settings.mode.choose("none");
    expect(new ShortcutSettings(storage).isPressed("shortcuts", control)).toBe(false);
  });

  it("send with Enter, or only with Control or Command if the user says so", () => {
    const storage = new StorageScope("own", new MemoryStorage());
    const settings = new ShortcutSettings(storage);
    const keys = [press("Enter"), press("Enter", { ctrlKey: true }), press("Enter", { shiftKey: true })];
    expect(keys.map((each) => settings.sends(each, false))).toEqual([true, true, false]);
    settings.sendKey.choose("Mod+Enter");
    expect(keys.map((each) => new ShortcutSettings(storage).sends(each, false))).toEqual([false, true, false]);
    expect(settings.sends(press("Enter", { metaKey: true }), true)).toBe(true);
    expect(SHORTCUTS.slice(0, 2).map((each) => settings.keysOf(each))).toEqual([
      ["Mod+Enter"],
      ["Enter", "Shift+Enter"],
    ]);
  });

  it("are labelled like the keys", () => {
    expect([keyLabels("Mod+Shift+O", false), keyLabels("Mod+Enter", true), keyLabels("Escape", false)]).toEqual([
      ["Ctrl", "Shift", "O"],
      ["⌘", "Enter"],
      ["Esc"],
    ]);
  });

  it("know text fields", () => {
    const [area, field, button] = ["textarea", "input", "button"].map((name) => document.createElement(name));
    expect([area, field].map((each) => isTextField(each as HTMLElement))).toEqual([true, true]);
    expect([button, null].map((each) => isTextField(each as HTMLElement))).toEqual([false, false]);
  });
});
