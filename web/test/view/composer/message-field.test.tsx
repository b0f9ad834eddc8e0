import { signal } from "@preact/signals";
import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Composer } from "../../../src/composer/composer";
import type { ShortcutSettings } from "../../../src/composer/shortcuts";
import { MessageField } from "../../../src/view/composer/message-field";
import { mounted } from "../mounted";

const composer = { text: signal(""), thread: { id: signal(null) } } as unknown as Composer;
const shortcuts = { sendKey: signal("Enter") } as unknown as ShortcutSettings;
const { home, show } = mounted();
let button: HTMLElement;

beforeEach(() => void (button = document.body.appendChild(document.createElement("button"))));
afterEach(() => button.remove());

describe("the message field", () => {
  it("has the focus as soon as it is there", () => {
    render(<MessageField composer={composer} shortcuts={shortcuts} field={{ current: null }} />, home);
    expect(document.activeElement?.tagName).toBe("TEXTAREA");
  });

  it("leaves the focus where the user moved it while the chat was loading", () => {
    button.focus();
    show(<MessageField composer={composer} shortcuts={shortcuts} field={{ current: null }} />);
    expect(document.activeElement).toBe(button);
  });
});
