/** Text that a person reads lives in strings.ts, so that a second language is one more object. */

import { parseSync } from "vite";
import { describe, expect, test } from "vitest";

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

const sources = import.meta.glob<string>(["../src/**/*.{ts,tsx}", "!../src/strings.ts"], {
  query: "?raw",
  import: "default",
  eager: true,
});

describe("text that a person reads", () => {
  test("is in strings.ts only", () => {
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
