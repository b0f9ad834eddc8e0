/** Copies text, with a fallback where the page may not write to the clipboard. */

import { button, element } from "./dom";

const SAID_FOR = 2_000;

/** A button that copies a text, `called` as in "Copy code". Where copying is forbidden, as in frames, it selects
 * `selected` for the user to copy. */
export function copyButton(called: string, text: () => string, selected: () => Node): HTMLElement {
  const said = element("span", { class: "copied", role: "status" });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const say = (words: string): void => {
    said.textContent = words;
    clearTimeout(timer);
    timer = setTimeout(() => said.replaceChildren(), SAID_FOR);
  };
  const copy = button("code-button", "Copy", () => {
    void copyText(text()).then((isCopied) => {
      if (!isCopied) selectContents(selected());
      say(isCopied ? "Copied" : "Selected: copy it with your keyboard or menu");
    });
  });
  copy.setAttribute("aria-label", `Copy ${called}`);
  return element("span", { class: "copying" }, said, copy);
}

/** Copy a text. Returns false where that is forbidden. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export function selectContents(node: Node): void {
  const selection = getSelection();
  selection?.removeAllRanges();
  const range = document.createRange();
  range.selectNodeContents(node);
  selection?.addRange(range);
}
