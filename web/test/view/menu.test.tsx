import { act } from "preact/test-utils";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Menu, type MenuEntry } from "../../src/view/menu";
import { mounted } from "./mounted";

const { home, show } = mounted();
const chosen = vi.fn<(label: string) => void>();

function shown(...entries: readonly (MenuEntry | string)[]): HTMLButtonElement {
  const items = entries.map((each) =>
    typeof each !== "string" || each === "line" ? (each as MenuEntry) : { label: each, run: () => chosen(each) },
  );
  show(<Menu label="More" entries={items}>…</Menu>);
  return home.querySelector("button")!;
}

const press = (key: string): void =>
  void act(() => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    document.activeElement!.dispatchEvent(event);
  });
const click = (element: Element): void => void act(() => (element as HTMLElement).click());
const list = (): Element | null => home.querySelector("[role=menu]");
const here = (): string => document.activeElement?.textContent ?? "";

beforeEach(() => void chosen.mockClear());

describe("a submenu", () => {
  const models: MenuEntry = {
    label: "With…",
    entries: [
      { label: "small", run: () => chosen("small") },
      { label: "large", run: () => chosen("large") },
    ],
  };
  const lists = (): string[] => [...home.querySelectorAll("[role=menu]")].map((each) => each.getAttribute("aria-label") ?? "");

  it("opens with ArrowRight, and closes with ArrowLeft or Escape to its item", () => {
    click(shown("Rename", models, "Delete"));
    press("ArrowRight");
    expect(lists()).toEqual(["More"]); // Rename has none
    press("ArrowDown");
    for (const key of ["ArrowLeft", "Escape"]) {
      press("ArrowRight");
      expect([lists(), here()]).toEqual([["More", "With…"], "small"]);
      press("ArrowUp");
      expect(here()).toBe("large");
      press(key);
      expect([lists(), here()]).toEqual([["More"], "With…"]);
    }
    press("Escape");
    expect(list()).toBeNull();
  });

  it("closes with the whole menu when an item is chosen, and gives the focus back", () => {
    const button = shown("Rename", models);
    click(button);
    press("End");
    click(document.activeElement!);
    press("l");
    click(document.activeElement!);
    expect(chosen.mock.calls).toEqual([["large"]]);
    expect(list()).toBeNull();
    expect(document.activeElement).toBe(button);
  });

  it("closes when another item is focused, and stays open for a click in the menu", () => {
    click(shown("Rename", models));
    press("End");
    press("ArrowRight");
    act(() => void home.querySelector(".menu")!.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true })));
    expect(lists()).toEqual(["More", "With…"]);
    act(() => home.querySelector<HTMLElement>(".menu-item")!.focus());
    expect(lists()).toEqual(["More"]);
  });
});

describe("a menu", () => {
  it("opens with its first entry focused and aria-expanded set", () => {
    const button = shown("Rename", "line", "Delete");
    expect(button.getAttribute("aria-expanded")).toBe("false");
    click(button);
    expect(button.getAttribute("aria-expanded")).toBe("true");
    expect(here()).toBe("Rename");
  });

  it("moves the focus with arrow keys, letters, Home and End", () => {
    const button = shown("Rename", "Pin", "Delete");
    button.focus();
    press("ArrowUp");
    expect(here()).toBe("Delete");
    press("ArrowDown");
    expect(here()).toBe("Rename");
    press("p");
    expect(here()).toBe("Pin");
    press("End");
    expect(here()).toBe("Delete");
    press("Home");
    expect(here()).toBe("Rename");
    press("ArrowUp");
    expect(here()).toBe("Delete");
  });

  it.each(["Escape", "Tab"])("returns the focus to its button with %s", (key) => {
    const button = shown("Rename");
    click(button);
    press(key);
    expect(list()).toBe(null);
    expect(document.activeElement).toBe(button);
    expect(chosen).not.toHaveBeenCalled();
  });

  it("closes before it runs an action, which may take the focus", () => {
    const button = shown({ label: "Rename", run: () => chosen(String(document.activeElement === button)) });
    click(button);
    click(document.activeElement!);
    expect(chosen).toHaveBeenCalledWith("true");
    expect(list()).toBe(null);
  });

  it("stays open and focused for an action that needs a second press", () => {
    const button = shown({ label: "Delete", staysOpen: true, run: () => chosen("once") });
    click(button);
    click(document.activeElement!);
    shown({ label: "Really delete", run: () => chosen("twice") });
    expect(here()).toBe("Really delete");
    click(document.activeElement!);
    expect(chosen.mock.calls).toEqual([["once"], ["twice"]]);
  });

  it("reports that it has closed after the action", () => {
    const told: string[] = [];
    const entries = [{ label: "Delete", run: () => told.push("chosen") }];
    const hear = (isOpen: boolean): unknown => told.push(String(isOpen));
    show(<Menu label="More" entries={entries} onToggle={(isOpen) => void hear(isOpen)}>…</Menu>);
    click(home.querySelector("button")!);
    click(document.activeElement!);
    expect(told).toEqual(["true", "chosen", "false"]);
  });

  it("ignores disabled items", () => {
    click(shown({ label: "Pin", isDisabled: true, run: () => chosen("Pin") }));
    click(document.activeElement!);
    expect(chosen).not.toHaveBeenCalled();
  });

  it("closes on a click outside, and leaves the focus there", () => {
    const elsewhere = document.body.appendChild(document.createElement("button"));
    click(shown("Rename"));
    act(() => void elsewhere.dispatchEvent(new Event("pointerdown", { bubbles: true })));
    elsewhere.focus();
    expect(list()).toBe(null);
    expect(document.activeElement).toBe(elsewhere);
    elsewhere.remove();
  });

  it("distinguishes choices from actions", () => {
    click(shown({ label: "Dark", isChecked: true, run: () => chosen("Dark") }, "Rename"));
    const roles = [...list()!.children].map((each) => [each.getAttribute("role"), each.getAttribute("aria-checked")]);
    expect(roles).toEqual([
      ["menuitemradio", "true"],
      ["menuitem", null],
    ]);
  });
});
