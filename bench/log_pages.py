"""Which pages a turn writes: `python -m bench.log_pages [--turns N]`.

Prints, for the begin and the commit of a turn, the pages that each table and index adds to SQLite's log, and
the bytes of a whole turn against those of a bare transaction with the same inserts.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw

from bench.floor import Floor
from bench.measures import one_turn
from turnledger import Ledger

HEAD, FRAME = 32, 24
"""Bytes of the header of a log, and of each frame in it; the page follows."""


def transactions(log: Path) -> Iterator[list[int]]:
    """Yield the page numbers that each transaction in a log has written."""
    raw = log.read_bytes()
    size = int.from_bytes(raw[8:12], "big")
    pages: list[int] = []
    for at in range(HEAD, len(raw), FRAME + size):
        pages.append(int.from_bytes(raw[at : at + 4], "big"))
        if int.from_bytes(raw[at + 4 : at + 8], "big"):  # the database size: set in the last frame
            yield pages
            pages = []


def owners(file: Path) -> dict[int, str]:
    """Return the table or index that each page belongs to."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    found = {int(page): str(name) for page, name in connection.execute("SELECT pageno, name FROM dbstat")}
    connection.close()
    return {1: "header", **found}


class Unreset:
    """Keeps a log from starting over, by a reader that stays at its snapshot."""

    def __init__(self, file: Path) -> None:
        self._connection = apsw.Connection(str(file))
        self._connection.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()

    def close(self) -> None:
        self._connection.close()


async def turns(folder: Path, count: int) -> tuple[Path, list[list[int]]]:
    """Run turns in one chat of some; return the file, and what each transaction wrote, warmed up."""
    file = folder / "turns.db"
    ledger = await Ledger.open(f"sqlite:///{file}")
    chats = [await ledger.conversation() for _ in range(5)]
    for chat in chats:
        await one_turn(chat)
    unreset = Unreset(file)
    before = len(list(transactions(Path(f"{file}-wal"))))
    for _ in range(count):
        await one_turn(chats[2])
    written = list(transactions(Path(f"{file}-wal")))[before:]
    unreset.close()
    await ledger.close()
    return file, written


def bare(folder: Path, count: int, body: bytes) -> int:
    """Return the pages that bare transactions write."""
    floor = Floor(folder, body)
    floor.commit()
    unreset = Unreset(folder / "floor.db")
    log = Path(f"{folder / 'floor.db'}-wal")
    before = len(list(transactions(log)))
    for _ in range(count):
        floor.commit()
    written = list(transactions(log))[before:]
    unreset.close()
    floor.close()
    return sum(map(len, written))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.log_pages", description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    options = parser.parse_args()
    count = options.turns
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name).resolve()
        file, written = asyncio.run(turns(folder, count))
        names, size = owners(file), int.from_bytes(file.read_bytes()[16:18], "big")
        connection = apsw.Connection(str(file))
        [(body,)] = connection.execute("SELECT body FROM turn ORDER BY ref DESC LIMIT 1").fetchall()
        connection.close()
        floor_pages = bare(folder, count, body)
    kinds = {"begin": written[0::2], "commit": written[1::2]}
    print(f"{len(written)} transactions of {count} turns; pages of {size} bytes, per turn:")
    for kind, group in kinds.items():
        counted = Counter(names.get(page, "?") for pages in group for page in pages)
        print(f"{kind:8} {sum(counted.values()) / count:6.2f}")
        for owner, pages in counted.most_common():
            print(f"    {pages / count:6.2f}  {owner}")
    ours = sum(map(len, written))
    print(
        f"bytes of a turn {ours * (size + FRAME) / count:,.0f}, of a bare transaction "
        f"{floor_pages * (size + FRAME) / count:,.0f}: {ours / floor_pages:.2f}"
    )


if __name__ == "__main__":
    main()
