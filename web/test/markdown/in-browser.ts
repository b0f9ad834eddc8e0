/** What the tests in a real browser want to have in their hands. */

import { sanitizeHtml } from "../../src/markdown/sanitizer";
import { linkDefinitions, segmentToHtml, type LinkDefinitions } from "../../src/markdown/html";
import { MarkdownRenderer } from "../../src/markdown/renderer";
import { segmentView } from "../../src/markdown/segment-views";
import { Segments } from "../../src/markdown/segments";
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

/** What a text makes of the page, counted without the sanitizer, which takes most of the time and adds nothing. */
export function counts(text: string): Readonly<Record<string, number>> {
  const segments = new Segments();
  const all = [...segments.take(text), ...segments.rest];
  const definitions: LinkDefinitions = new Map();
  let [nodes, atOnce, formulas, typeset] = [0, 0, 0, 0];
  for (const segment of all) {
    const holder = document.createElement("template");
    if (segment.kind === "prose") {
      for (const definition of linkDefinitions(segment.source)) definitions.set(...definition);
      const html = segmentToHtml(segment.source, { definitions, formulasBefore: formulas });
      formulas += html.formulas;
      holder.innerHTML = html.blocks.map(({ start, items, end }) => start + items.join("") + end).join("");
    } else {
      holder.content.append(...segmentView(segment, { definitions, formulasBefore: formulas }).nodes);
    }
    typeset += holder.content.querySelectorAll("[data-maths]").length;
    const walker = document.createTreeWalker(holder.content);
    let added = 0;
    while (walker.nextNode()) added += 1;
    nodes += added;
    atOnce = Math.max(atOnce, added);
  }
  return { segments: all.length, nodes, atOnce, formulas: typeset };
}

/** The HTML that the page shows of a text which arrives like this. */
export function shown(...texts: readonly string[]): string {
  const place = document.createElement("div");
  const text = new MarkdownRenderer(place);
  texts.forEach((each, index) => {
    text.show(each, index < texts.length - 1);
    text.draw(Infinity);
  });
  return place.innerHTML;
}
