"""Markdown for all reference pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

WIDTH = 100
"""Most characters of a signature before each parameter gets its own line."""


def head(title: str, text: str) -> str:
    return f"# {title}\n\n<!-- Written by `make reference` from the code: change it there. -->\n\n{text}\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *lines]) + "\n"


def cell(text: str) -> str:
    """Escape a text for a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```\n"


def prose(text: str) -> str:
    """Join the lines of a comment or docstring; keep its paragraphs and lists."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(_paragraph(each) for each in paragraphs)


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if any(line.startswith(("- ", "* ", "    ", "|", "├", "└", "│")) for line in lines):
        return text
    return " ".join(line.strip() for line in lines)


def sections(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
