"""Find language that makes readers stumble: `python -m tools.language [--list]`, and in `make lint`.

Reads comments, docstrings and messages of the sources, and the prose of the documents. A habit may occur as
often as ALLOWED says, so that new text is plain while old text is rewritten: lower the number, never raise
it.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.reference.errors import defaults, messages

ROOT = Path(__file__).parents[1]
PLACES = ("src", "docs", "web/src", "clients/typescript/src", "README.md", "ARCHITECTURE.md")
GENERATED = "docs/reference/"
MOST_WORDS = 20

HABITS = {
    "headless clause": re.compile(
        r"\b[Ww]ho (?:is|was|has|comes|came|reads|asks)\b|(?:^|[.:] )(?:Who|Whoever|Whatever) "
    ),
    "he for a user": re.compile(r"\b(?:he|his|him)\b"),
    "told": re.compile(r"\b(?:is|are|was|were|be|been) told\b"),
    "let in, shut out": re.compile(r"\b(?:let in|lets in|shut out|shuts out)\b"),
    "by now": re.compile(r"\bby now\b"),
}
LONG = f"message of more than {MOST_WORDS} words"

ALLOWED = {
    "headless clause": 3,
    "he for a user": 0,
    "told": 0,
    "let in, shut out": 0,
    "by now": 0,
    LONG: 0,
}


class Hit(NamedTuple):
    habit: str
    place: str
    text: str


def hits() -> Iterator[Hit]:
    for path in sources():
        text = path.read_text("utf-8")
        name = path.relative_to(ROOT).as_posix()
        for number, line in prose(path.suffix, text):
            for habit, pattern in HABITS.items():
                if pattern.search(line):
                    yield Hit(habit, f"{name}:{number}", line.strip())
    for message in (*defaults(), *messages()):
        if len(message.text.split()) > MOST_WORDS:
            yield Hit(LONG, f"{message.module}:{message.line}", message.text)


def sources() -> Iterator[Path]:
    for place in PLACES:
        top = ROOT / place
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            is_read = path.suffix in {".py", ".md", ".ts", ".tsx"}
            if is_read and not path.relative_to(ROOT).as_posix().startswith(GENERATED):
                yield path


def prose(kind: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that a person reads as sentences."""
    if kind == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield from enumerate(token.string.lstrip("rbf#'\" ").splitlines(), token.start[0])
        return
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def main() -> int:
    found = list(hits())
    too_many = False
    for habit, allowed in ALLOWED.items():
        these = [hit for hit in found if hit.habit == habit]
        if len(these) > allowed or "--list" in sys.argv:
            print(f"{habit}: {len(these)}, allowed: {allowed}")
            for hit in these:
                print(f"  {hit.place}: {hit.text}")
        elif len(these) < allowed:
            print(f"{habit}: {len(these)} are left. Lower its number in ALLOWED ({allowed}).")
        too_many |= len(these) > allowed
    return int(too_many)


if __name__ == "__main__":
    sys.exit(main())
