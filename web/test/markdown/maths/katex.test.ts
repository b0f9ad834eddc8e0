import { describe, expect, it, vi } from "vitest";
import { makeMathML } from "../../../src/markdown/maths/katex";

// KaTeX asks for it, and happy-dom has none.
vi.hoisted(() => Object.defineProperty(document, "compatMode", { value: "CSS1Compat", configurable: true }));

function made(tex: string, isBlock = false): string | null {
  return makeMathML(tex, isBlock)?.innerHTML ?? null;
}

describe("MathML of LaTeX", () => {
  it("has neither styles nor annotations", () => {
    expect(made("\\frac{a}{b}^2")).toBe("<mrow><msup><mfrac><mi>a</mi><mi>b</mi></mfrac><mn>2</mn></msup></mrow>");
    expect(makeMathML("x", true)?.getAttribute("display")).toBe("block");
  });

  it("writes variants as Unicode, which browsers show", () => {
    const letters = "\\mathbb{RxA1}\\mathcal{LA}\\mathfrak{Cg}\\mathbf{v2}\\mathtt{z}\\mathsf{S}";
    expect(makeMathML(letters, false)?.textContent).toBe("ℝ𝕩𝔸𝟙ℒ𝒜ℭ𝔤𝐯𝟐𝚣𝖲");
  });

  it("aligns columns by classes", () => {
    const math = makeMathML("\\begin{aligned}a&=b\\\\c&=d\\end{aligned}", true);
    const classes = [...(math?.querySelectorAll("mtd") ?? [])].map((cell) => cell.getAttribute("class"));
    const row = ["maths-right maths-tight", "maths-left maths-tight"];
    expect(classes).toEqual([...row, ...row]);
    expect(made("\\begin{align}a&=b\\end{align}", true)?.match(/<mtd/g)).toHaveLength(2);
  });

  it.each([
    ["errors", "\\frac{a"],
    ["unknown commands", "\\unknown"],
    ["definitions", "\\def\\a{xxxxxxxxxx}\\a\\a"],
    ["new commands", "\\newcommand{\\a}{x}\\a"],
    ["much text", "x".repeat(2_001)],
    ["many elements", "x^1".repeat(600)],
    ["deep nesting", "\\sqrt{".repeat(50) + "x" + "}".repeat(50)],
    ["many expansions", "\\dots ".repeat(301)],
    ["links", "\\href{javascript:owned()}{x}"],
    ["addresses", "\\url{https://a.example}"],
    ["images", "\\includegraphics{https://a.example/a.png}"],
    ["styles", "\\htmlStyle{color:red}{x}"],
    ["ids", "\\htmlId{page}{x}"],
  ])("is none: %s", (_, tex) => expect(made(tex)).toBeNull());

  it("holds no colours", () => {
    for (const tex of ["\\color{red}x", "\\colorbox{red}{x}", "\\textcolor{#fff}{x}"]) {
      expect(made(tex)).not.toMatch(/ style=|red|fff|color|background/);
    }
  });

  it("holds no direction overrides", () => expect(makeMathML('\\text{a\\char"202E b}', false)?.textContent).toBe("a\u00a0b"));
});
