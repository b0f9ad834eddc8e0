"""Texts of 30 kB that cost a page more than others: many elements for few letters, or more than linear time.

A test bounds their nodes and the work on them; `python -m bench.page --texts` measures their frames.
"""

from __future__ import annotations

SIZE = 30_000


LONG = 15_000
"""Letters of a long line: the page parses none that are much longer."""
WORD = 1_900
"""The same of a word."""


def _filled(piece: str, before: str = "", after: str = "") -> str:
    """Return as many of these pieces as fit."""
    return before + piece * ((SIZE - len(before) - len(after)) // len(piece)) + after


def _lines(piece: str, length: int = LONG) -> str:
    """Return lines of these pieces."""
    return _filled(piece * ((length - 1) // len(piece)) + "\n")


def _balanced(opened: str, closed: str, length: int = LONG) -> str:
    count = (length - 2) // (len(opened) + len(closed))
    return _filled(f"{opened * count}{closed * count}\n\n")


def _table(columns: int, row: str) -> str:
    return _filled(row, f"{'a|' * columns}\n{'-|' * columns}\n")


TEXTS: dict[str, str] = {
    "stars": _lines("*", WORD),
    "stars and spaces": _lines("* "),
    "stars and words": _lines("*a "),
    "stars and underlines": _lines("*a_", WORD),
    "strong and emphasis": _lines("**a *b "),
    "paragraphs of stars": _filled("*a* _b_ " * 70 + "\n\n"),
    "paragraphs of open stars": _filled("*a **b " * 80 + "\n\n"),
    "tildes": _lines("~~a~ "),
    "empty links": _lines("[](", WORD),
    "empty links and spaces": _lines("[]( "),
    "open links": _lines("[a](b "),
    "links": _lines("[a](https://b.example) "),
    "links that pretend": _lines("[c.example](https://b.example) "),
    "links in links": _balanced("[a ", "](b) "),
    "images": _lines("![a](https://b.example/c.png) "),
    "embedded images": _filled("![](data:image/gif;base64,AA)\n"),
    "images in images": _balanced("![ ", "](b) "),
    "brackets": _balanced("[ ", "] "),
    "references": _lines("[a] ") + "\n\n[a]: https://b.example",
    "definitions": "\n".join(f"[{number}]: https://b.example" for number in range(1_100)),
    "references and definitions": "\n\n".join(f"[{number}]\n\n[{number}]: //b" for number in range(1_300)),
    "addresses": _lines("https://a.example "),
    "addresses without spaces": _lines("www.a@b.", WORD),
    "addresses that do not end": _lines("http://(", WORD),
    "mail addresses": _lines("a@b.c "),
    "pointed brackets": _lines("<a "),
    "comments": _lines("<!-- "),
    "breaks": _lines("<br>", WORD),
    "lines": _filled("a\n"),
    "paragraphs": _filled("a\n\n"),
    "headings": _filled("# a\n"),
    "underlined headings": _filled("a\n-\n\n"),
    "rules": _filled("---\n\n"),
    "quotations": _filled("> a\n\n"),
    "nested quotations": _filled("> " * 19 + "a\n\n"),
    "deep quotations": _lines(">", WORD),
    "lazy quotations": _filled("> a\nb\n"),
    "bullets": _filled("- a\n"),
    "empty bullets": _filled("-\n"),
    "tasks": _filled("- [x] a\n"),
    "nested bullets": _filled("- " * 19 + "a\n\n"),
    "nested bullets in quotations": _filled("> " + "- " * 18 + "a\n"),
    "bullets, deeper by each line": "\n".join("  " * (depth % 30) + "- a" for depth in range(880)),
    "alternating bullets": _filled("- a\n+ a\n"),
    "loose bullets": _filled("- a\n\n  b\n\n"),
    "a wide table": _table(1_000, "a\n"),
    "a narrow table": _table(2, "a|b\n"),
    "a table of one column": _filled("|\n", "|a|\n|-|\n"),
    "a table of stars": _table(20, "*a*|" * 20 + "\n"),
    "tables": _filled("|a|\n|-|\n|b|\n\n"),
    "wide tables": _filled("a|" * 60 + "\n" + "-|" * 60 + "\n" + "a|\n" * 20 + "\n"),
    "wide tables in a list": _filled("- " + "a|" * 60 + "\n  " + "-|" * 60 + "\n" + "  a|\n" * 20),
    "wide tables in quotations": _filled("> " + "a|" * 60 + "\n> " + "-|" * 60 + "\n" + "> a|\n" * 20 + "\n"),
    "rules of tables": _lines("-|"),
    "code": _lines("`a` "),
    "ticks": " ".join("`" * length for length in range(1, 190)),
    "fences": _filled("```\na\n```\n"),
    "fences with a language": _filled("```py\n1\n```\n"),
    "fences in a list": _filled("- ```js\n  1\n  ```\n"),
    "indented code": _filled("    a\n\nb\n\n"),
    "spans of code": _filled("1 'a'\n", "```py\n", "```"),
    "spans of short code": _filled("1 'a'\n", "```py\n", "```")[:19_900] + "\n```",
    "entities": _lines("&amp;", WORD),
    "backslashes": _lines("\\*", WORD),
    "marks on a letter": _filled("\u0301", "a"),
    "directions": _lines("\u202ea\u05d0 "),
    "a word": _filled("x"),
    "formulas in paragraphs": _filled("$x$\n\n"),
    "formulas in a line": _lines("$x$ "),
    "formulas in lines": _filled("$x$\n"),
    "formulas in bullets": _filled("- $x$\n"),
    "formulas in cells": _table(20, "$x$|" * 20 + "\n"),
    "formulas in blocks": _filled("$$\nx\n$$\n\n"),
    "long formulas": _filled("$$" + "x_1+" * 350 + "x$$\n\n"),
    "fractions in fractions": _filled("$$" + "\\frac{1}{" * 15 + "x" + "}" * 15 + "$$\n\n"),
    "matrices": _filled("$$\\begin{matrix}" + ("&" * 20 + "\\\\") * 20 + "\\end{matrix}$$\n\n"),
    "invalid formulas": _filled("$\\frac{x$\n\n"),
    "formulas that do not end": _lines("\\( \\[ $$ x "),
    "dollars": _lines("$a "),
    "spaces": _lines(" "),
    "empty lines": _filled("\n", after="x"),
}
