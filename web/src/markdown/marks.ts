/** Which stretches of code are what. */

import type { HLJSApi, Language } from "highlight.js";
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import makefile from "highlight.js/lib/languages/makefile";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

/** That of highlight.js knows each property by name, and is as large as three other languages. */
const css = ({ C_BLOCK_COMMENT_MODE, APOS_STRING_MODE, QUOTE_STRING_MODE }: HLJSApi): Language => ({
  name: "CSS",
  contains: [
    C_BLOCK_COMMENT_MODE,
    APOS_STRING_MODE,
    QUOTE_STRING_MODE,
    { scope: "keyword", begin: /@[\w-]+|!important\b/ },
    { scope: "attribute", begin: /(?<=[{;/][ \t\n]{0,100})[\w-]+(?=[ \t]{0,100}:)/ },
    { scope: "number", begin: /#[\da-fA-F]{3,8}\b(?=[^{]{0,100};)|\b\d+(?:\.\d+)?(?:%|[a-z]+)?/ },
    { scope: "selector-class", begin: /[.#:][\w-]+(?=[^;}]{0,200}\{)/ },
  ],
});

const LANGUAGES = {
  bash, cpp, csharp, css, diff, dockerfile, go, ini, java, json, kotlin,
  makefile, markdown, python, ruby, rust, shell, sql, typescript, xml, yaml,
};

for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** One stretch of code after the other, each with the class that colours it, or none. */
export type Marks = readonly { readonly length: number; readonly kind: string | null }[];

/** The colours, by what highlight.js tells apart. Where something stands in something else, the inner one is right. */
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

/** The marks of some code in a language of these. */
export function marksIn(code: string, language: string): Marks {
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
