"""Generate the blocking client and the blocking ledger from the awaiting ones: `make twins`.

Each module of `client/aio` becomes one of `client/sync`: `async` and `await` are removed, names and prose
follow the tables below. Where threads and tasks differ further, both have a module `edge.py`, written by
hand. For the ledger, see blocking_ledger.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tokenize
from io import StringIO
from pathlib import Path

from tools import blocking_ledger

CLIENT = Path(__file__).parents[1] / "src" / "turnledger" / "client"
SOURCE, TARGET = CLIENT / "aio", CLIENT / "sync"
BY_HAND = {"__init__.py", "edge.py"}
HEADER = "# Generated from client/aio by `make twins`. Edit that.\n"
NAMES = {
    "aio": "sync",
    "async_client": "client",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "aiter_raw": "iter_raw",
    "anext": "next",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
"""Also, classes lose their prefix: AsyncChat becomes Chat."""
PROSE = {
    r"\bAsync(?=[A-Z])": "",
    r"\btasks of one loop\b": "threads",
    r"\btask(s?)\b": r"thread\1",
    r"\bawait(ed|ing)\b": "blocking",
}


def twin(source: str) -> str:
    """Return the blocking form of an awaiting module, not yet formatted."""
    lines = source.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(StringIO(source).readline))):
        text = token.string
        if token.type == tokenize.NAME:
            text = NAMES.get(text, re.sub(r"^Async(?=[A-Z])", "", text))
            text = "" if text in ("async", "await") else text
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and text[0] in "\"'"):
            for pattern, replacement in PROSE.items():
                text = re.sub(pattern, replacement, text)
        if text != token.string:
            (first, start), (last, end) = token.start, token.end
            rest = lines[last - 1][end:]
            lines[first - 1 : last] = [lines[first - 1][:start] + text + (rest if text else rest.lstrip(" "))]
    return HEADER + "".join(lines)


def twins() -> dict[Path, str]:
    made = {
        TARGET / module.name: twin(module.read_text())
        for module in sorted(SOURCE.glob("*.py"))
        if module.name not in BY_HAND
    }
    made |= blocking_ledger.modules()
    return {path: _formatted(text, path) for path, text in made.items()}


def _formatted(text: str, path: Path) -> str:
    for command in (["check", "--fix-only", "--unsafe-fixes", "--select", "F401,I,UP028"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Write them; with `--check`, only report outdated ones."""
    stale = [path for path, text in twins().items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            raise SystemExit(f"Outdated: {', '.join(map(str, stale))}. Run `make twins`.")
        return
    for path in stale:
        path.write_text(twins()[path], "utf-8")


if __name__ == "__main__":
    main()
