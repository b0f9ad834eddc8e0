"""Search the logs of a run for tokens, credentials, and texts of users and models.

Texts are compared by words, so that escapes, quotes and line ends make no difference; four words in a row are
a match, so that parts are found, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROW = 4
"""Words in a row that are no coincidence."""
SHORTEST = {1: 14, 2: 12, 3: 12, 4: 12}
"""Minimum letters, by number of words, that distinguish a text from words of the log."""
SHORTEST_CREDENTIAL = 8
SECRETS = {
    "a token": re.compile(r"tlt_[0-9A-Za-z]{20,}"),
    "a code of a link": re.compile(r"tls_[0-9A-Za-z]{20,}"),
    "an authorization": re.compile(r"\b(?:bearer|basic)[\s:=\"']+[\w.~+/-]{8,}", re.IGNORECASE),
    "an api_key": re.compile(r"\bsk-[\w-]{4,}"),
}


class Finding(NamedTuple):
    what: str
    file: str
    line: str


class Report(NamedTuple):
    logs: int
    lines: int
    texts: int
    findings: list[Finding]


def search(folder: Path) -> Report:
    """Search all logs of a folder for the recorded texts."""
    texts, credentials = _recorded(folder)
    rows = {row for text in texts for row in _rows_of_text(text)}
    logs = sorted(folder.glob("*.log"))
    findings, count = [], 0
    for log in logs:
        lines = log.read_text("utf-8", "backslashreplace").splitlines()
        count += len(lines)
        for line, public in dict.fromkeys(map(_distinctive, lines)):
            found = _found(line, line.replace(public, ""), rows, credentials)
            findings += [Finding(what, log.name, line) for what in found]
    return Report(len(logs), count, len(texts) + len(credentials), findings)


def _recorded(folder: Path) -> tuple[set[str], set[str]]:
    found: dict[str, set[str]] = {"text": set(), "credential": set()}
    for file in folder.glob("*.texts"):
        for line in file.read_text("utf-8").splitlines():
            for kind, value in json.loads(line).items():
                found[kind].add(value)
    return found["text"], {each for each in found["credential"] if len(each) >= SHORTEST_CREDENTIAL}


def _found(line: str, private: str, rows: set[str], credentials: Iterable[str]) -> Iterator[str]:
    for name, secret in SECRETS.items():
        if secret.search(line):
            yield name
    if any(each in line for each in credentials):
        yield "a credential"
    found = next((row for row in _rows_of_line(private) if row in rows), None)
    if found is not None:
        yield f"a chat text ({found})"


_OWN_WORDS = re.compile(
    r"\b(?:req|conv|turn|br|item|tok)_[0-9a-f]{12,}\b"
    r"|https?://127\.0\.0\.1(?::\d+)?(?![\w:])"  # where a server listens
)


def _distinctive(line: str) -> tuple[str, str]:
    """Return a line without its variable parts, and its part that may be a text: the path of a request is
    logged as it was sent."""
    try:
        fields = json.loads(line)
    except ValueError:
        return _OWN_WORDS.sub("", line), ""
    if not isinstance(fields, dict):
        return line, ""
    for name in ("timestamp", "ms"):
        fields.pop(name, None)
    shown = [_OWN_WORDS.sub("", f"{name}: {value}") for name, value in _strings(fields)]
    paths = [each for each in shown if each.startswith("path: ") and fields.get("event") == "request"]
    return " | ".join(shown), "".join(paths)


def _strings(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        yield name, value if isinstance(value, str) else json.dumps(value)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _rows_of_text(text: str) -> Iterator[str]:
    """Yield the rows of words of a text, or the whole text if it is short."""
    words = _words(text)
    for row in _rows(words, min(len(words), ROW)):
        if len(row) >= SHORTEST.get(row.count(" ") + 1, 0):
            yield row


def _rows_of_line(line: str) -> Iterator[str]:
    words = _words(line)
    for length in range(1, ROW + 1):
        yield from _rows(words, length)


def _rows(words: list[str], length: int) -> Iterator[str]:
    for start in range(len(words) - length + 1 if length else 0):
        yield " ".join(words[start : start + length])
