import { describe, expect, it } from "vitest";
import { marksIn } from "../../src/markdown/marks";

function told(code: string, language: string): [string, string | null][] {
  let at = 0;
  return marksIn(code, language).map(({ length, kind }) => {
    at += length;
    return [code.slice(at - length, at), kind];
  });
}

describe("marks", () => {
  it("tell what is what, of each letter once", () => {
    expect(told(`def f(x):\n    return "<&>" # 'a'`, "python")).toEqual([
      ["def", "code-keyword"],
      [" ", null],
      ["f", "code-title"],
      ["(x):\n    ", null],
      ["return", "code-keyword"],
      [" ", null],
      [`"<&>"`, "code-string"],
      [" ", null],
      ["# 'a'", "code-comment"],
    ]);
  });

  it.each([
    ["css", "a:hover, .b > #c { color: #fff; margin: 1.5rem !important } /* x */ @media (x) {}"],
    ["typescript", "const a: string = `x${1 + 2}`; // <b>"],
    ["xml", `<a b="c">&amp;<!-- d --></a><style>a { b: c }</style>`],
    ["markdown", "# a\n\n- *b* `c`\n\n> d"],
    ["sql", "select a from b where c = 'd''' -- e"],
    ["yaml", "a: [1, 'b']\n# c"],
    ["cpp", "#include <a>\nint main() { return 'a'; }"],
    ["bash", "for a in $(ls); do echo \"$a\"; done"],
  ])("leave no letter out: %s", (language, code) => {
    expect(told(code, language).map(([text]) => text).join("")).toBe(code);
    expect(told(code, language).some(([, kind]) => kind !== null)).toBe(true);
  });
});
