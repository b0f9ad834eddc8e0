/** What the tests in a real browser want to have in their hands. */

import { sanitizeHtml } from "../../src/markdown/sanitizer";
import { MarkdownRenderer } from "../../src/markdown/renderer";
import { TEXTS } from "./texts";

/** The HTML that is left of some HTML. */
export function left(html: string): string {
  const place = document.createElement("div");
  place.append(sanitizeHtml(html));
  return place.innerHTML;
}

/** The names of texts that are not the same in the end if they come in two pieces, however these are cut. */
export function differing(): string[] {
  return Object.entries(TEXTS).flatMap(([name, text]) => {
    const whole = shown(text);
    const step = Math.ceil(text.length / (text.length > 1_000 ? 40 : 200));
    for (let at = 0; at < text.length; at += step) if (shown(text.slice(0, at), text) !== whole) return `${name} ${at}`;
    return [];
  });
}

function shown(...texts: readonly string[]): string {
  const place = document.createElement("div");
  const text = new MarkdownRenderer(place);
  texts.forEach((each, index) => {
    text.show(each, index < texts.length - 1);
    text.draw(Infinity);
  });
  return place.innerHTML;
}
