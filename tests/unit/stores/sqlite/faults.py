"""Disks that fail: SQLite file systems in Python that refuse a sync, or forget what was not synced."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw

_names = itertools.count()
Op = Callable[[bytearray], None]


@dataclass
class DiskFile:
    """A file as the disk has it, and the writes since that it may or may not have."""

    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Op] = field(default_factory=list)

    def sync(self) -> None:
        for op in self.unsynced:
            op(self.durable)
        self.unsynced.clear()


class FaultyDisk(apsw.VFS):
    """Passes everything on to the real disk, and keeps book of what would survive a power loss."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_names)}"
        super().__init__(self.name, "")
        self.files: dict[str, DiskFile] = {}
        self.syncs: list[str] = []
        self.refuses_sync: str | None = None
        self.refusal: apsw.Error = apsw.IOError("the disk refuses to sync")
        self.read_only = False

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        if self.read_only:
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[0] |= apsw.SQLITE_OPEN_READONLY
        return FaultyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.files.pop(filename, None)

    def lose_power(self, store: Path, folder: Path, random: Random | None = None) -> Path:
        """Write what the disk is left with into a folder: all that was synced, and of the rest nothing,
        or each write by the toss of a coin. Returns the path of the store there."""
        folder.mkdir()
        for name, file in self.files.items():
            image = bytearray(file.durable)
            for op in file.unsynced:
                if random is not None and random.random() < 0.5:
                    op(image)
            folder.joinpath(Path(name).name).write_bytes(image)
        return folder / store.name


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self.disk = disk
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self.file = disk.files.setdefault(self.path, DiskFile()) if self.path else DiskFile()

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        copy = bytes(data)

        def write(image: bytearray) -> None:
            image.extend(bytes(max(0, offset - len(image))))
            image[offset : offset + len(copy)] = copy

        self.file.unsynced.append(write)

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)

        def truncate(image: bytearray) -> None:
            del image[size:]

        self.file.unsynced.append(truncate)

    def xSync(self, flags: int) -> None:
        if self.disk.refuses_sync is not None and self.path.endswith(self.disk.refuses_sync):
            raise self.disk.refusal
        super().xSync(flags)
        self.disk.syncs.append(self.path)
        self.file.sync()
