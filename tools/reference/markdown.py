"""Pieces of Markdown that all reference pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

WIDTH = 100
"""Characters that a signature may take before each of its parameters has a line of its own."""


def head(title: str, says: str) -> str:
    """The beginning of a page."""
    return f"# {title}\n\n<!-- Written by `make reference` from the code: change it there. -->\n\n{says}\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty without rows."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *lines]) + "\n"


def cell(text: str) -> str:
    """A text as it can stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```\n"


def prose(text: str) -> str:
    """What a comment or docstring says: its lines are joined, its paragraphs and lists stay."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(_paragraph(each) for each in paragraphs)


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if any(line.startswith(("- ", "* ", "    ", "|", "├", "└", "│")) for line in lines):
        return text
    return " ".join(line.strip() for line in lines)


def sections(parts: Iterable[str]) -> str:
    """Parts of a page with an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
