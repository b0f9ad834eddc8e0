/** The levels of headings, as who listens to a page walks through them: none is left out, however they were chosen. */

/** The title of the chat is above all of them. */
const ABOVE = 1;

/** Say the level of each heading in a text, where it is not that of its looks. */
export function levelHeadings(text: Element): void {
  const around: number[] = [];
  for (const heading of text.querySelectorAll("h2, h3, h4, h5, h6")) {
    const looks = Number(heading.tagName.slice(1));
    while ((around.at(-1) ?? 0) >= looks) around.pop();
    around.push(looks);
    const level = around.length + ABOVE;
    if (level === looks) heading.removeAttribute("aria-level");
    else heading.setAttribute("aria-level", String(level));
  }
}
