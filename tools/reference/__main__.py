"""`python -m tools.reference` writes the reference pages; with `--check` it names the outdated ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.reference.pages import FOLDER, PAGES


def main(arguments: Sequence[str]) -> int:
    """Write outdated pages, or with `--check` name them; return 1 if some were named."""
    outdated = [name for name, page in PAGES.items() if _written(FOLDER / name) != page()]
    for name in outdated:
        if "--check" in arguments:
            print(f"{name} is not what the code says: make reference")
        else:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(PAGES[name](), "utf-8")
            print(f"Wrote {FOLDER / name}")
    return 1 if outdated and "--check" in arguments else 0


def _written(path: Path) -> str | None:
    return path.read_text("utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
