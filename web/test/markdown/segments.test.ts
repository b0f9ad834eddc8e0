import { describe, expect, it } from "vitest";
import { segmentToHtml, linkDefinitions, type LinkDefinitions } from "../../src/markdown/html";
import { Segments, type Segment } from "../../src/markdown/segments";
import { TEXTS } from "./texts";

function htmlOf(source: string, definitions: LinkDefinitions = new Map()): string {
  return segmentToHtml(source, { definitions, formulasBefore: 0 })
    .blocks
    .map(({ start, items, end }) => start + items.join("") + end)
    .join("");
}

function segmentsOf(text: string): readonly Segment[] {
  const segments = new Segments();
  return [...segments.take(text), ...segments.rest];
}

function inParts(text: string): string {
  const segments = segmentsOf(text);
  const definitions: LinkDefinitions = new Map();
  for (const { kind, source } of segments) {
    if (kind !== "prose") continue;
    for (const [name, value] of linkDefinitions(source)) if (!definitions.has(name)) definitions.set(name, value);
  }
  return segments.map(({ source }) => htmlOf(source, definitions)).join("");
}

/** Texts that are cut where Markdown goes on, and why. */
const OTHERWISE = new Set(["deep", "many emphases", "a long line", "a long list", "unicode"]);
const ALIKE = Object.entries(TEXTS).filter(([name]) => !OTHERWISE.has(name));

describe("segments", () => {
  it.each(ALIKE)("render together like the whole text: %s", (_, text) => {
    expect(inParts(text)).toBe(htmlOf(text));
  });

  it("settle as soon as no later text can change them", () => {
    const segments = new Segments();
    expect(segments.take("- a\n\n1")).toEqual([]);
    expect(segments.take("2\n\n")).toEqual([{ kind: "prose", source: "- a\n\n" }]);
    expect(segments.take("b")).toEqual([]);
    expect(segments.rest).toEqual([
      { kind: "prose", source: "12\n\n" },
      { kind: "prose", source: "b" },
    ]);
    expect(segments.take("\n```js\n1")).toMatchObject([{ source: "12\n\n" }, { source: "b\n" }]);
    expect(segments.rest).toMatchObject([{ kind: "code", text: "1", language: "js", isOpen: true }]);
    expect(segments.take("\n```\n")).toMatchObject([{ kind: "code", text: "1", isOpen: false }]);
    expect(segments.rest).toEqual([]);
  });

  it("stay short in an endless list or paragraph", () => {
    const list = segmentsOf("- item\n".repeat(5_000));
    const lines = segmentsOf("some words\n".repeat(20_000));
    expect(Math.max(...list.map(({ source }) => source.length))).toBeLessThan(6_100);
    expect(Math.max(...lines.map(({ source }) => source.length))).toBeLessThan(8_100);
  });

  it.each([
    ["deep quotations", ">".repeat(10_000)],
    ["deep lists", "- ".repeat(10_000) + "x"],
    [
      "lists that go deeper line by line",
      Array.from({ length: 100 }, (_, depth) => `${" ".repeat(depth * 2)}- a`).join("\n"),
    ],
    ["a long word", "x".repeat(1_000_000)],
    ["emphases that never end", "*a_".repeat(5_000)],
    ["underlines in a word", "a_".repeat(5_000)],
    ["signs of exclamation", "!".repeat(10_000)],
    ["stars", `a${"*".repeat(15_000)}a`],
    ["links without an end", "[](".repeat(5_000)],
    ["beginnings of addresses", "http".repeat(4_000)],
    ["words between stars and underlines", "*a_ ".repeat(301)],
    ["words between tildes", "~~a~ ".repeat(301)],
    ["a table of stars", `|*|\n|-|\n${"|*a_|\n".repeat(1_001)}`],
  ])("are plain text: %s", (_, text) => {
    expect(segmentsOf(text).every(({ kind }) => kind === "plain")).toBe(true);
    expect(segmentsOf(`${text}\n`).every(({ kind }) => kind === "plain")).toBe(true);
  });

  const WIDE = `${"| a ".repeat(1_000)}|\n${"| - ".repeat(1_000)}|\n`;

  it.each([
    ["a wide table", `${WIDE}${"|\n".repeat(500)}`],
    ["a quoted table", `> ${WIDE.replace("\n", "\n> ")}${"> |\n".repeat(500)}`],
    ["a table in a list", `- ${WIDE.replace("\n", "\n  ")}${"  |\n".repeat(500)}`],
    ["many tables", `${WIDE}|\n|\n\n`.repeat(100)],
    ["a long table", `|a|b|\n|-|-|\n${"|1|2|\n".repeat(50_000)}`],
  ])("have a bounded number of cells: %s", (_, text) => {
    const segments = segmentsOf(text);
    const tables = segments.filter(({ kind }) => kind === "prose");
    const cells = tables.map(({ source }) => htmlOf(source).match(/<t[dh]/g)?.length ?? 0);
    expect(Math.max(...cells)).toBeLessThan(4_000);
    expect(cells.reduce((sum, each) => sum + each)).toBeLessThan(25_000);
    const shown = segments.map(({ source }) => source);
    expect(shown.join("").replaceAll("\n", "").length).toBeGreaterThanOrEqual(text.replaceAll("\n", "").length);
  });

  it("continue a long table under its header", () => {
    const rows = Array.from({ length: 900 }, (_, row) => `| row ${row} | ${"words ".repeat(20)} |\n`);
    const tables = segmentsOf(`| a | b |\n|---|---|\n${rows.join("")}\nend`);
    const html = tables.map(({ source }) => htmlOf(source)).join("");
    expect(tables.length).toBeGreaterThan(2);
    expect(html.match(/<tr>/g)?.length).toBe(900 + tables.length - 1);
    expect(html).not.toContain("| row");
  });

  it("hold embedded images, and mark incomplete ones", () => {
    const line = `![a](data:image/png;base64,${"A".repeat(100_000)})`;
    expect(segmentsOf(`x\n${line}\ny`)).toMatchObject([
      { kind: "prose" },
      { kind: "picture", alt: "a" },
      { kind: "prose" },
    ]);
    expect(segmentsOf(line.slice(0, -1))).toMatchObject([{ kind: "picture", address: null }]);
  });
});
