import { describe, expect, it } from "vitest";
import { extractFormulas, withOpenFormulaAsText } from "../../../src/markdown/maths/formulas";

function found(text: string): string[] {
  return extractFormulas(text).formulas.map(({ source }) => source);
}

describe("formulas in a text", () => {
  it.each([
    ["parentheses", "so \\(x\\) is", ["\\(x\\)"]],
    ["brackets over lines", "so\n\\[\na\n=\n- b\n\\]\nis", ["\\[\na\n=\n- b\n\\]"]],
    ["two dollars over lines", "$$\nx\n$$", ["$$\nx\n$$"]],
    ["one dollar", "so $a + b$, $n$th ($k$) and $2x+1$.", ["$a + b$", "$n$", "$k$", "$2x+1$"]],
    ["an escaped backslash in them", "\\[a \\\\[2pt] b\\]", ["\\[a \\\\[2pt] b\\]"]],
    ["an escaped dollar in them", "$\\$5 + x$", ["$\\$5 + x$"]],
    ["in a quotation", "> \\[\n> x > 0\n> \\]", ["\\[\nx > 0\n\\]"]],
    ["in text without spaces", "其中$x$是，所以$$y$$", ["$x$", "$$y$$"]],
    ["after ticks that are not code", "a ` b \\(x\\)", ["\\(x\\)"]],
  ])("%s", (_, text, formulas) => expect(found(text)).toEqual(formulas));

  it.each([
    ["prices", "It costs $5 and $10, or $5-$10, 5$ or 6$, US$5 or A$6."],
    ["prices and words", "From $5 (or C$) up, $20 million (A$)."],
    ["levels of prices", "A ($$), B ($$); $$ to $$$; one $$ and two $$ too"],
    ["names of variables", "$HOME/bin:$PATH, ${a}/${b} and $a/$b"],
    ["spaces within", "a $ x$ or $x $ b"],
    ["code", "`\\(x\\)` and ``$$ ` $$``"],
    ["delimiters in code", "Use `\\(` and `\\)`, or `$` and `$`."],
    ["code that only seems within", "\\(a `b\\)`"],
    ["fenced code in a list", "- a\n  ```\n  \\(x\\)\n  ```"],
    ["escapes", "\\\\(x\\\\) and \\$x\\$"],
    ["links", "\\[a\\](https://a.example)"],
    ["empty lines within", "\\[a\n\nb\\] $$a\n \nb$$"],
    ["nothing within", "\\(\\) $$ $$ \\[ \\]"],
    ["private characters", "\ue0000\ue001 \\(x\\)"],
  ])("none: %s", (_, text) => expect(found(text)).toEqual([]));

  it("is not typeset after many others", () => {
    const typeset = extractFormulas("$x$ ".repeat(600)).formulas.filter(({ isTypeset }) => isTypeset);
    expect(typeset).toHaveLength(500);
  });

  it("is searched in linear time", () => {
    const texts = ["\\(".repeat(50_000), `${"\\[".repeat(50_000)}\n\n\\]`, "$a ".repeat(50_000), "$$ ".repeat(50_000)];
    const ticks = Array.from({ length: 600 }, (_, length) => "`".repeat(length)).join(" ");
    for (const text of [...texts, ticks + "$".repeat(50_000)]) expect(found(text).length).toBeLessThan(2);
  });
});

describe("a formula that has not ended", () => {
  it.each([
    ["so \\(a_1 * \\{b\\", "so \\\\\\(a\\_1 \\* \\\\\\{b\\\\"],
    ["- \\[\n  + x", "- \\\\\\[\n  \\+ x"],
    ["\\(x\\) and $$y", "\\(x\\) and \\$\\$y"],
  ])("is escaped: %s", (text, escaped) => expect(withOpenFormulaAsText(text)).toBe(escaped));

  it.each(["so \\(x\\) is", "\\(x\n\nand so *on*", "a `\\(` b", "costs $5 **or"])("is none: %s", (text) =>
    expect(withOpenFormulaAsText(text)).toBe(text),
  );
});
