import { signal } from "@preact/signals";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Composer } from "../../../src/composer/composer";
import type { ShortcutSettings } from "../../../src/composer/shortcuts";
import { MessageField } from "../../../src/view/composer/message-field";

const composer = { text: signal(""), thread: { id: signal(null) } } as unknown as Composer;
const shortcuts = { sendKey: signal("Enter") } as unknown as ShortcutSettings;
let home: HTMLElement;
let button: HTMLElement;

beforeEach(() => {
  button = document.body.appendChild(document.createElement("button"));
  home = document.body.appendChild(document.createElement("div"));
});
afterEach(() => {
  act(() => render(null, home));
  home.remove();
  button.remove();
});

describe("the message field", () => {
  it("has the focus as soon as it is there", () => {
    render(<MessageField composer={composer} shortcuts={shortcuts} field={{ current: null }} />, home);
    expect(document.activeElement?.tagName).toBe("TEXTAREA");
  });

  it("leaves the focus where the user moved it while the chat was loading", () => {
    button.focus();
    act(() => render(<MessageField composer={composer} shortcuts={shortcuts} field={{ current: null }} />, home));
    expect(document.activeElement).toBe(button);
  });
});
