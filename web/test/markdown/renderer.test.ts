import { describe, expect, it, vi } from "vitest";
import { MarkdownRenderer } from "../../src/markdown/renderer";
import { TEXTS } from "./texts";

// Real browsers test the sanitizer; here each piece of HTML is parsed only once.
vi.mock("../../src/markdown/sanitizer", () => {
  const read = new Map<string, HTMLTemplateElement>();
  const parsed = (html: string): DocumentFragment => {
    let template = read.get(html);
    if (!template) {
      template = document.createElement("template");
      template.innerHTML = html;
      read.set(html, template);
    }
    return template.content.cloneNode(true) as DocumentFragment;
  };
  return { sanitizePieces: (pieces: readonly string[]) => pieces.map(parsed) };
});

const ALL = Object.entries(TEXTS);
/** See tests/long_form.py. */
const IS_LONG = process.env["LONG_TESTS"] === "1";

function shown(...texts: readonly string[]): string {
  const place = document.createElement("div");
  const text = new MarkdownRenderer(place);
  texts.forEach((each, index) => {
    text.show(each, index < texts.length - 1);
    text.draw(Infinity);
  });
  return place.innerHTML;
}

/** Cuts of a text, fewer of a long one. */
function cuts(text: string): number[] {
  const [many, few] = IS_LONG ? [200, 12] : [40, 4];
  const step = Math.ceil(text.length / (text.length > 1_000 ? few : many));
  return Array.from({ length: Math.ceil(text.length / step) }, (_, index) => index * step);
}

describe("streamed Markdown", { timeout: 60_000 }, () => {
  // Wherever it is cut in two: real browsers test that, too (`differing`).
  it.each(ALL)("renders the same as it grows as at once: %s", (_, text) => {
    const grown = cuts(text).map((at) => text.slice(0, at));
    expect(shown(...grown, text)).toBe(shown(text));
  });

  it("renders the same in pieces as at once, in any combination", () => {
    let seed = 7;
    const random = (below: number): number => {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
      return Math.floor((seed / 2_147_483_648) * below);
    };
    const lines = ALL.filter(([, { length }]) => length < 1_000).flatMap(([, text]) => text.split("\n"));
    for (let round = 0; round < (IS_LONG ? 60 : 15); round += 1) {
      const text = Array.from({ length: 12 }, () => lines[random(lines.length)]).join(random(3) ? "\n" : "\n\n");
      const grown: string[] = [];
      for (let at = random(9); at < text.length; at += 1 + random(20)) grown.push(text.slice(0, at));
      expect(shown(...grown, text), text).toBe(shown(text));
    }
  });

  it("leaves settled blocks alone", () => {
    const place = document.createElement("div");
    const text = new MarkdownRenderer(place);
    text.show("One.\n\nTwo.\n\n```\na", true);
    const before = [...place.children];
    text.show("One.\n\nTwo.\n\n```\na\nb\n```\n\nThree [x]", true);
    text.draw();
    expect([...place.children].slice(0, 3)).toEqual(before);
    expect(before[2]?.querySelector("code")?.textContent).toBe("a\nb");
  });

  it("keeps code in a list that grows", () => {
    const place = document.createElement("div");
    const text = new MarkdownRenderer(place);
    const list = "1. one\n\n   ```js\n   a";
    text.show(list, true);
    const block = place.querySelector(".code-block");
    text.show(`${list} = 1\n   b`, true);
    text.draw();
    expect(place.querySelector(".code-block")).toBe(block);
    expect(block?.querySelector("code")?.textContent).toBe("a = 1\nb");
  });

  it("bounds the formulas of a message, wherever they are and however they arrive", () => {
    const text = `${"$x$\n\n".repeat(400)}- $y$\n\n${"| $z$ |\n|---|\n| $z$ |\n\n".repeat(100)}`;
    const at = shown(text);
    expect(at.match(/class="maths"/g)).toHaveLength(500);
    expect(shown(text.slice(0, 2_111), text.slice(0, 2_900), text)).toBe(at);
  });

  it("finds no link definitions in code", () => {
    expect(shown("[a]\n\n```\n[a]: https://never.example")).not.toContain("<a");
  });

  it("shows each of several equal code blocks once", () => {
    const text = "    a\n\n   x\n\n    a";
    expect(shown("    a", text)).toBe(shown(text));
  });

  it("leaves formulas as typed until they are typeset", () => {
    const place = document.createElement("div");
    const text = new MarkdownRenderer(place);
    const typed = "So \\(a_1 * b_2 * \\{c\\}\\) is, and\n\\[\nx\n=\n- y\\\\\n\\]\nor $a*b*c$.";
    for (let end = 1; end <= typed.length; end += 1) {
      text.show(typed.slice(0, end), end < typed.length);
      text.draw(Infinity);
    }
    expect(place.textContent?.replaceAll("\n", "")).toBe(typed.replaceAll("\n", ""));
    expect(place.querySelectorAll("em, ul, h2")).toHaveLength(0);
    expect([...place.querySelectorAll(".maths")].map(({ className }) => className)).toEqual([
      "maths",
      "maths maths-block",
      "maths",
    ]);
  });

  it("shows a formula that is still streaming as typed", () => {
    const typed = "- So \\(a_1 * b * \\{c\\";
    expect(shown(typed, "x")).toBe(shown("x"));
    const place = document.createElement("div");
    new MarkdownRenderer(place).show(typed, true);
    expect(place.querySelector("li")?.textContent).toBe(typed.slice(2));
    expect(place.querySelector("em, .maths")).toBeNull();
  });

  it("leaves formulas in code, addresses and titles alone", () => {
    const text = "`\\(x\\)`\n\n    $$x$$\n\n[a](https://a.example/$x$ '$y$') ![$z$](https://a.example/\\(a\\))";
    const html = shown(text);
    expect(html).toContain("<code>\\(x\\)</code>");
    expect(html).toContain(">$$x$$<");
    expect(html).toContain('href="https://a.example/$x$" title="$y$ (a.example)"');
    expect(html).toContain("$z$");
    expect(html).not.toContain("maths");
  });

  it("is discarded for another text", () => {
    expect(shown("One.\n\nTwo.", "Other")).toBe(shown("Other"));
  });
});
