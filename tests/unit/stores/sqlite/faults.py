"""Disks that fail: SQLite file systems in Python that refuse a sync, or forget what was not synced."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw

_names = itertools.count()
Kept = Callable[[], bool]
Op = Callable[[bytearray, Kept], None]
SECTOR = 512
NEWLY_NAMED = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
"""Files whose first sync also syncs the folder, as SQLite does on Unix."""


def always() -> bool:
    return True


@dataclass
class DiskFile:
    """A file as the disk has it, and the writes since that it may or may not have."""

    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Op] = field(default_factory=list)

    def sync(self) -> None:
        for op in self.unsynced:
            op(self.durable, always)
        self.unsynced.clear()


class FaultyDisk(apsw.VFS):
    """Passes everything on to the real disk, and keeps book of what would survive a power loss."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_names)}"
        super().__init__(self.name, "")
        self.files: dict[str, DiskFile] = {}
        self.deleted: dict[str, DiskFile] = {}
        """Files that come back if the power goes before the folder is synced."""
        self.before_each: Callable[[], None] | None = None
        """Called before every write, truncation, sync and deletion."""
        self.syncs: list[str] = []
        self.sync_flags: set[int] = set()
        self.refuses_sync: str | None = None
        self.is_full = False
        self.refusal: apsw.Error = apsw.IOError("the disk refuses to sync")
        self.read_only = False

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        if self.read_only:
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[0] |= apsw.SQLITE_OPEN_READONLY
        return FaultyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.about_to_change()
        super().xDelete(filename, syncdir)
        file = self.files.pop(filename, None)
        if syncdir:
            self.deleted.clear()
        elif file is not None:
            self.deleted[filename] = file

    def about_to_change(self) -> None:
        if self.before_each is not None:
            self.before_each()

    def lose_power(
        self, store: Path, folder: Path, random: Random | None = None, *, torn: bool = False
    ) -> Path:
        """Write what the disk is left with into a folder: all that was synced, and of the rest nothing,
        or each write by the toss of a coin; `torn`, each sector of it, and each deletion is undone. Returns
        the path of the store there."""
        folder.mkdir()

        def toss() -> bool:
            return random is not None and random.random() < 0.5

        for name, file in {**(self.deleted if torn else {}), **self.files}.items():
            image = bytearray(file.durable)
            for op in file.unsynced:
                if torn or toss():
                    op(image, toss if torn else always)
            folder.joinpath(Path(name).name).write_bytes(image)
        return folder / store.name


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self.disk = disk
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self.file = disk.files.setdefault(self.path, DiskFile()) if self.path else DiskFile()
        self.syncs_folder = bool(flags[0] & NEWLY_NAMED)

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.about_to_change()
        if self.disk.is_full:
            super().xWrite(bytes(data)[: len(data) // 2], offset)
            raise apsw.FullError("database or disk is full")
        super().xWrite(data, offset)
        copy = bytes(data)

        def write(image: bytearray, is_kept: Kept) -> None:
            for start in range(0, len(copy), SECTOR):
                if is_kept():
                    at, sector = offset + start, copy[start : start + SECTOR]
                    image.extend(bytes(max(0, at - len(image))))
                    image[at : at + len(sector)] = sector

        self.file.unsynced.append(write)

    def xTruncate(self, size: int) -> None:
        self.disk.about_to_change()
        super().xTruncate(size)

        def truncate(image: bytearray, is_kept: Kept) -> None:
            if is_kept():
                del image[size:]

        self.file.unsynced.append(truncate)

    def xSync(self, flags: int) -> None:
        self.disk.about_to_change()
        if self.disk.refuses_sync is not None and self.path.endswith(self.disk.refuses_sync):
            raise self.disk.refusal
        super().xSync(flags)
        self.disk.syncs.append(self.path)
        self.disk.sync_flags.add(flags & ~apsw.SQLITE_SYNC_DATAONLY)
        self.file.sync()
        if self.syncs_folder:
            self.syncs_folder = False
            self.disk.deleted.clear()
