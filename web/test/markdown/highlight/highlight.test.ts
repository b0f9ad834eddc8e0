import { describe, expect, it } from "vitest";
import { highlight } from "../../../src/markdown/highlight/highlight";

function told(code: string, language: string): [string, string | null][] {
  let at = 0;
  return highlight(code, language).map(({ length, kind }) => {
    at += length;
    return [code.slice(at - length, at), kind];
  });
}

describe("highlight spans", () => {
  it("cover each letter once", () => {
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

  it("distinguish calls from keywords", () => {
    const kinds = told("if (f(x)) while(y) { const z = /[/]a/g; return new Map<string>(`${1}`) }", "typescript");
    expect(kinds.filter(([, kind]) => kind !== null)).toEqual([
      ["if", "code-keyword"],
      ["f", "code-title"],
      ["while", "code-keyword"],
      ["const", "code-keyword"],
      ["/[/]a/g", "code-string"],
      ["return", "code-keyword"],
      ["new", "code-keyword"],
      ["Map", "code-type"],
      ["string", "code-type"],
      ["`${1}`", "code-string"],
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
    ["rust", "#[derive(Debug)]\nfn main<'a>() -> u8 { let x = 'b'; 0xff_u8 } // c"],
    ["go", "func main() { s := `raw\n\\`; fmt.Println('\\n', 1e3) }"],
    ["java", '@Override public int f() { return """\n a """.length(); }'],
    ["kotlin", "fun f(x: Int) = when (x) { 1 -> 'a'; else -> null }"],
    ["csharp", '#region\nvar x = $"{y}"; foreach (var a in b) {}'],
    ["swift", 'func f(_ x: Int) throws -> String { "\\(x)" }'],
    ["php", "<?php # a\n$x = 'b'; ECHO f($x); ?>"],
    ["ruby", 'def f(a) = :b # c\n@d = "e#{a}"'],
    ["lua", "--[[ a\n]] local x = [[b]] -- c"],
    ["bash", 'for a in $(ls); do echo "$a"; done'],
  ])("leave out no letter: %s", (language, code) => {
    expect(
      told(code, language)
        .map(([text]) => text)
        .join(""),
    ).toBe(code);
    expect(told(code, language).some(([, kind]) => kind !== null)).toBe(true);
  });
});
