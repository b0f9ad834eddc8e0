/** Copies text, with a fallback where the page may not write to the clipboard. */

import { button, element } from "./dom";
import { strings } from "../strings";

/** Milliseconds for which the result is shown. */
const STATUS_TIME = 2_000;

/** A button that copies a text; `name` as in "Copy code". Where copying is forbidden, as in frames, it selects
 * `selected` for the user to copy. */
export function copyButton(name: string, text: () => string, selected: () => Node): HTMLElement {
  const status = element("span", { class: "copied", role: "status" });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const report = (text: string): void => {
    status.textContent = text;
    clearTimeout(timer);
    timer = setTimeout(() => status.replaceChildren(), STATUS_TIME);
  };
  const copy = button("code-button", strings.markdown.copy, () => {
    void copyText(text()).then((isCopied) => {
      if (!isCopied) selectContents(selected());
      report(isCopied ? strings.common.copied : strings.common.textSelected);
    });
  });
  copy.setAttribute("aria-label", strings.markdown.copyBlock(name));
  return element("span", { class: "copying" }, status, copy);
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
