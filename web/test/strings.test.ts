/** Text that a person reads has one file per language, and each language has all of it. */

import { parseSync } from "vite";
import { afterEach, describe, expect, test } from "vitest";
import { english } from "../src/strings/english";
import { formatsOf } from "../src/strings/formats";
import { german } from "../src/strings/german";
import { locale, preferredLanguage, showLanguage, strings, type Strings } from "../src/strings";

/** Attributes and properties that are shown or read aloud. */
const READ_NAMES = /^(aria-(label|description|valuetext)|title|placeholder|alt|label|hint|text|subject)$/;
/** Functions that show the text that they are called with. */
const SHOW_CALLS = /^(announce|news|button|element)$/;
const LETTER = /\p{L}/u;
const CAPITAL_WORD = /^\P{L}*\p{Lu}\p{Ll}/u;
const SENTENCE = /^\P{L}*\p{Lu}\p{Ll}*\s.*\p{L}{3}/su;
/** Text that the server stores in place of a tool's result; it is compared, not shown. */
const COMPARED = /^\.\.\/src\/thread\/turn-parts\.ts$/;

interface Node {
  readonly type: string;
  readonly [field: string]: unknown;
}

function isNode(value: unknown): value is Node {
  return typeof (value as Node | null)?.type === "string";
}

function children(node: Node): Node[] {
  return Object.values(node)
    .flat()
    .filter((each) => isNode(each));
}

/** The last word of a name, as `announce` of `session.notices.announce`. */
function nameOf(node: unknown): string {
  if (!isNode(node)) return "";
  if (node.type === "MemberExpression") return nameOf(node["property"]);
  return String(node["name"] ?? node["value"] ?? "");
}

/** The text of a literal, or of a template without its values; null for any other node. */
function textOf(node: Node): string | null {
  if (node.type === "Literal") return typeof node["value"] === "string" ? node["value"] : null;
  if (node.type !== "TemplateLiteral") return null;
  return (node["quasis"] as { value: { cooked: string } }[]).map(({ value }) => value.cooked).join("…");
}

/** The texts that an expression may evaluate to. */
function results(node: Node): string[] {
  const text = textOf(node);
  if (text !== null) return [text];
  const passes = /^(Conditional|Logical|Binary|TSAs|TSSatisfies|Parenthesized)Expression$|^JSXExpressionContainer$/;
  if (!passes.test(node.type)) return [];
  const parts = node.type === "ConditionalExpression" ? [node["consequent"], node["alternate"]] : children(node);
  const isComparison = node.type === "BinaryExpression" && node["operator"] !== "+";
  return isComparison ? [] : parts.filter(isNode).flatMap(results);
}

function literals(path: string, source: string): string[] {
  const found: string[] = [];
  const visit = (node: Node): void => {
    if (node.type === "ImportDeclaration") return;
    if (node.type === "NewExpression" && /^(Type)?Error$/.test(nameOf(node["callee"]))) return; // for developers
    if (node.type === "JSXText") found.push(...[String(node["value"])].filter((text) => LETTER.test(text)));
    if (node.type === "JSXAttribute" || node.type === "Property") {
      const value = node["value"];
      const name = nameOf(node["name"] ?? node["key"]);
      const isText = node.type === "Property" ? CAPITAL_WORD : LETTER;
      if (isNode(value) && READ_NAMES.test(name)) found.push(...results(value).filter((text) => isText.test(text)));
    }
    if (node.type === "JSXElement" || node.type === "JSXFragment") {
      for (const child of node["children"] as Node[]) {
        if (child.type === "JSXExpressionContainer") found.push(...results(child).filter((text) => LETTER.test(text)));
      }
    }
    if (node.type === "CallExpression" && SHOW_CALLS.test(nameOf(node["callee"]))) {
      const texts = (node["arguments"] as Node[]).flatMap(results);
      found.push(...texts.filter((text) => CAPITAL_WORD.test(text)));
    }
    const text = textOf(node);
    if (text !== null && SENTENCE.test(text) && !COMPARED.test(path)) found.push(text);
    children(node).forEach(visit);
  };
  visit(parseSync(path, source).program as unknown as Node);
  return [...new Set(found.map((text) => text.trim()))];
}

const sources = import.meta.glob<string>(["../src/**/*.{ts,tsx}", "!../src/strings/*.ts"], {
  query: "?raw",
  import: "default",
  eager: true,
});

describe("text that a person reads", () => {
  test("is in the files of languages only", () => {
    expect(Object.keys(sources).length).toBeGreaterThan(100);
    const found = Object.entries(sources).flatMap(([path, source]) =>
      literals(path, source).map((text) => `${path}: ${text}`),
    );
    expect(found).toEqual([]);
  });

  test.each([
    ["text", "<p>Hello</p>"],
    ["an attribute", '<a title="Hello" />'],
    ["a template in an attribute", "<a aria-label={`Open ${name}`} />"],
    ["a choice in an attribute", '<a title={isOpen ? "Close" : label} />'],
    ["a choice between texts", '<p>{isOpen ? "less" : words}</p>'],
    ["a property", 'menu({ label: "Rename" })'],
    ["an argument", 'notices.announce("Copied")'],
    ["a sentence anywhere", 'const why = "The server is away";'],
  ])("is found as %s", (_, source) => {
    expect(literals("sample.tsx", source)).toHaveLength(1);
  });

  test.each([
    '<a class="button small" href="#new" />',
    'throw new Error("No such route");',
    'key === "Enter" && run()',
  ])("is not code: %s", (source) => {
    expect(literals("sample.tsx", source)).toEqual([]);
  });
});

/** Each text with its path; a function counts as its source. */
function texts(value: unknown, path = ""): [string, string][] {
  if (typeof value !== "object") return [[path, String(value)]];
  return Object.entries(value as object).flatMap(([name, each]) => texts(each, path ? `${path}.${name}` : name));
}

/** Names, and words that both languages write alike. */
const SAME = [
  ...["product", "layout.chat", "account.themes.system", "data.fileName", "signIn.token", "signIn.tokenPlaceholder"],
  ...["share.namePlaceholder", "share.unnamed", "admin.tokens", "admin.unnamed", "admin.columns.turns", "admin.number"],
  ...["admin.bytes", "chats.lists.chats", "shortcuts.keys.Enter", "shortcuts.keys.Escape"],
  "thread.fileName",
  ...["turn.tokens", "turn.seconds", "turn.minutes", "tools.status", "markdown.plainText", "markdown.described"],
];

describe("a language", () => {
  afterEach(() => showLanguage("en"));

  test("has a translation of each text, in the same order", () => {
    const [one, other] = [texts(english), new Map(texts(german))];
    expect([...other.keys()]).toEqual(one.map(([path]) => path));
    expect(one.filter(([path, text]) => other.get(path) === text).map(([path]) => path)).toEqual(SAME);
  });

  test("with a string missing, one too many or one of another kind does not compile", () => {
    const { turn } = english;
    const { undo: _, ...rest } = english.common;
    // @ts-expect-error: `undo` is missing.
    const missing: Strings["common"] = rest;
    // @ts-expect-error: `extra` is unknown.
    const extra: Strings["models"] = { label: "", named: () => "", choose: "", find: "", none: "", extra: "" };
    // @ts-expect-error: `tokens` takes a number.
    const other: Strings["turn"] = { ...turn, tokens: (count: string) => count };
    expect([missing, extra, other]).toHaveLength(3);
  });

  test("writes numbers and plurals its own way", () => {
    expect([english.turn.tokens(1), english.turn.tokens(1_204)]).toEqual(["1 token", "1,204 tokens"]);
    expect([german.turn.tokens(1), german.turn.tokens(1_204)]).toEqual(["1 Token", "1.204 Tokens"]);
    expect([english.turn.seconds(3.25, 1), german.turn.seconds(3.25, 1)]).toEqual(["3.3 s", "3,3 s"]);
    // Arabic has six forms; a missing one is `other`.
    const { plural } = formatsOf("ar");
    expect([0, 1, 2, 3, 11].map((count) => plural(count, { two: "two", few: "few", other: "other" }))).toEqual([
      "other",
      "other",
      "two",
      "few",
      "other",
    ]);
  });

  test.each([
    [["de-AT", "en"], "de"],
    [["fr", "DE", "en"], "de"],
    [["en-GB", "de"], "en"],
    [["fr", "constructor"], "en"],
    [[], "en"],
  ])("is chosen from %j", (locales, expected) => {
    expect(preferredLanguage(locales)).toBe(expected);
  });

  test("is shown once it is loaded, unless another was chosen meanwhile", async () => {
    const shown = showLanguage("de");
    expect(strings.common.close).toBe("Close");
    await Promise.all([shown, showLanguage("en")]);
    expect([strings.common.close, locale()]).toEqual(["Close", "en-US"]);
    await showLanguage("de");
    expect([strings.common.close, locale()]).toEqual(["Schließen", "de"]);
  });
});
