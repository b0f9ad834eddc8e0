"""Recognize our files by their bytes, without a connection, which could already repair or unlink files beside
a foreign one.

A crash can tear the first page of our own file while SQLite writes it. The page is then complete in the log
or the rollback journal beside the file, and SQLite restores it when a connection opens.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import apsw

APPLICATION_ID = 0x54_4C_44_47
"""Marks a file as ours in its header: TLDG."""

PAGE_SIZE = 8192
"""Holds several turns of 1 to 2 kB without much waste; larger pages make each commit write more."""

MAGIC = b"SQLite format 3\0"
_HEADER = 100

# https://sqlite.org/fileformat2.html
_LOG_HEADER, _FRAME_HEADER = 32, 24
_LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_JOURNAL_HEADER = 28
_NUMBER = 4


def read_header(place: Path, vfs: str | None) -> bytes:
    """Read the header of a database; empty if the file is empty or absent."""
    if not place.exists():
        return b""
    # Not with open(): closing it would drop the locks that this process holds on the same file.
    file = apsw.VFSFile(vfs or "", str(place), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return file.xRead(_HEADER, 0)
    finally:
        file.xClose()


def is_ours(header: bytes) -> bool:
    """Return whether this is the beginning of a store's first page."""
    return header.startswith(MAGIC) and _number(header, 68) == APPLICATION_ID


def may_be_torn(header: bytes, size: int) -> bool:
    """Return whether a crash can have left this of a store's first page. An intact database that is not ours,
    and a file that does not consist of our pages, are foreign."""
    if not any(header):
        return True
    page_size = int.from_bytes(header[16:18], "big")
    is_sound = header.startswith(MAGIC) and page_size in (1, *(1 << power for power in range(9, 16)))
    if is_sound:
        return page_size == PAGE_SIZE and _number(header, 68) == 0
    return size % PAGE_SIZE == 0


def log_has_our_first_page(log: Path) -> bool:
    """Return whether a write-ahead log holds the first page of a store."""
    try:
        with log.open("rb") as file:
            header = file.read(_LOG_HEADER)
            page_size = _number(header, 8)
            if not header.startswith(_LOG_MAGIC) or not page_size:
                return False
            at = _LOG_HEADER
            while len(frame := _read(file, at, _FRAME_HEADER + _HEADER)) > _FRAME_HEADER:
                if _number(frame, 0) == 1 and is_ours(frame[_FRAME_HEADER:]):
                    return True
                at += _FRAME_HEADER + page_size
    except FileNotFoundError:
        pass
    return False


def journal_undoes_creation(journal: Path) -> bool:
    """Return whether a rollback journal records an empty file, as in the transaction that creates a store.
    SQLite empties the file again."""
    header = _journal_header(journal)
    return bool(header) and _number(header, 16) == 0 and _number(header, 24) == PAGE_SIZE


def journal_has_our_first_page(journal: Path) -> bool:
    """Return whether a rollback journal begins with a store's first page, as during a switch to WAL."""
    header = _journal_header(journal)
    if not header:
        return False
    with journal.open("rb") as file:
        record = _read(file, _number(header, 20), _NUMBER + _HEADER)
    return _number(record, 0) == 1 and is_ours(record[_NUMBER:])


def _journal_header(journal: Path) -> bytes:
    try:
        with journal.open("rb") as file:
            header = file.read(_JOURNAL_HEADER)
    except FileNotFoundError:
        return b""
    return header if header.startswith(_JOURNAL_MAGIC) else b""


def _read(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)


def _number(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + _NUMBER], "big")
