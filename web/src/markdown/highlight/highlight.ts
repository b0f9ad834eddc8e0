/** Highlight code: split it into spans with a class each. */

import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import ini from "highlight.js/lib/languages/ini";
import json from "highlight.js/lib/languages/json";
import makefile from "highlight.js/lib/languages/makefile";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import shell from "highlight.js/lib/languages/shell";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import * as grammars from "./grammars";

const LANGUAGES = { bash, diff, dockerfile, ini, json, makefile, markdown, python, shell, xml, yaml, ...grammars };

for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Consecutive spans of code, each with its class, or null. */
export type HighlightSpans = readonly { readonly length: number; readonly kind: string | null }[];

/** Classes by the scopes of highlight.js. The innermost scope wins. */
const KINDS: Readonly<Record<string, string>> = {
  addition: "added",
  attr: "name",
  attribute: "name",
  built_in: "type",
  bullet: "keyword",
  char: "string",
  class: "type",
  code: "string",
  comment: "comment",
  deletion: "removed",
  doctag: "comment",
  keyword: "keyword",
  link: "string",
  literal: "number",
  meta: "comment",
  name: "keyword",
  number: "number",
  property: "name",
  quote: "comment",
  regexp: "string",
  section: "title",
  "selector-attr": "name",
  "selector-class": "type",
  "selector-id": "type",
  "selector-pseudo": "name",
  "selector-tag": "keyword",
  string: "string",
  symbol: "number",
  tag: "name",
  "template-tag": "keyword",
  "template-variable": "name",
  title: "title",
  type: "type",
  variable: "name",
};

const PIECES = /<span class="(?:hljs-)?([^" ]*)[^>]*>|<\/span>|(&(?:amp|lt|gt|quot|#x27);)|[^<&]+/g;

export function highlight(code: string, language: string): HighlightSpans {
  const { value } = hljs.highlight(code, { language, ignoreIllegals: true });
  const marks: { length: number; kind: string | null }[] = [];
  const open: (string | null)[] = [null];
  for (const [piece, opened, entity] of value.matchAll(PIECES)) {
    const around = open.at(-1) ?? null;
    if (opened !== undefined) {
      open.push(Object.hasOwn(KINDS, opened) ? `code-${KINDS[opened]}` : around);
    } else if (piece === "</span>") {
      open.pop();
    } else {
      const length = entity === undefined ? piece.length : 1;
      const last = marks.at(-1);
      if (last && last.kind === around) last.length += length;
      else marks.push({ length, kind: around });
    }
  }
  return marks;
}
