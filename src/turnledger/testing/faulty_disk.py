"""A disk that fails: an SQLite VFS in Python that fails I/O on demand and loses unsynced writes.

    disk = FaultyDisk()
    store = await SqliteStore.open(path, vfs=disk.name)
    ...
    image = disk.lose_power(path, folder)      # what a power cut would leave at this moment
    disk.fail_next(3, apsw.FullError)          # the third I/O call from now on fails, once

Every call also reaches the real disk, so the store works as usual. The disk records what is durable: contents
as of the last sync of each file, names as of the last sync of the folder. As in SQLite's unix VFS, the first
sync of a journal or log by each handle that may have created it syncs the folder, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeAlias

import apsw

_names = itertools.count()
SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
Change: TypeAlias = Callable[[bytearray, Random | None], None]
"""A write or a truncation; with a Random, only some of its sectors arrive."""


class DiskFile:
    """The durable content of a file, and its unsynced changes."""

    def __init__(self, content: bytes = b"", *, has_name: bool = True) -> None:
        self.durable = bytearray(content)
        self.unsynced: list[Change] = []
        self.has_name = has_name
        """Whether its folder was synced since it was created."""

    def sync(self) -> None:
        for change in self.unsynced:
            change(self.durable, None)
        self.unsynced.clear()

    def image(self, random: Random | None) -> bytes:
        """Return its content after a power cut: with no unsynced change, or with random ones."""
        image = bytearray(self.durable)
        for change in self.unsynced if random is not None else ():
            assert random is not None
            fate = random.random()
            if fate < 0.6:
                change(image, random if fate < 0.2 else None)
        return bytes(image)


class FaultyDisk(apsw.VFS):
    def __init__(self) -> None:
        self.name = f"faulty-{next(_names)}"
        super().__init__(self.name, "")
        self.files: dict[str, DiskFile] = {}
        self.deleted: dict[str, DiskFile] = {}
        """Deleted since the last sync of the folder."""
        self.log_writes = 0
        """Writes to a write-ahead log."""
        self.synced_log_writes = 0
        self.syncs: list[str] = []
        self.sync_flags: set[int] = set()
        self.refuses_sync: str | None = None
        self.refusal: apsw.Error = apsw.IOError("the disk refuses to sync")
        self.read_only = False
        self.is_full = False
        self.calls = 0
        """I/O calls so far: writes, truncations, syncs and deletions."""
        self.before_call: Callable[[str, str], None] | None = None
        """Receives the name and path of each call before it happens."""
        self.counts_reads = False
        """Whether `calls` includes reads."""
        self._failing: tuple[range, Callable[[], apsw.Error]] | None = None

    def fail_next(self, count: int, error: Callable[[], apsw.Error], *, times: int = 1) -> None:
        """Make the `count`th I/O call from now on fail, `times` calls in all; later ones succeed."""
        first = self.calls + count
        self._failing = (range(first, first + times), error)

    def heal(self) -> bool:
        """Stop failing; return whether any call has failed."""
        failing, self._failing = self._failing, None
        return failing is not None and self.calls >= failing[0].start

    def lose_power(self, store: Path, folder: Path, random: Random | None = None) -> Path:
        """Write the files after a power cut into a new folder; return the path of the store there. They have
        all synced changes, and with a Random also random parts of the others, torn between sectors."""
        folder.mkdir()
        for place in (store, *(store.with_name(store.name + suffix) for suffix in ("-wal", "-journal"))):
            # A file that was not opened since the power returned is durable.
            if str(place) not in self.files and place.exists():
                folder.joinpath(place.name).write_bytes(place.read_bytes())
        for name, file in {**self.deleted, **self.files}.items():
            if Path(name).parent != store.parent:
                continue
            is_there = file.has_name or (random is not None and random.random() < 0.5)
            if name in self.deleted and name not in self.files:
                is_there = random is None or random.random() < 0.5
            if is_there:
                folder.joinpath(Path(name).name).write_bytes(file.image(random))
        return folder / store.name

    def kill(self, store: Path, folder: Path) -> Path:
        """Write the files after a kill of the process into a new folder; return the path of the store there.
        Unsynced changes are there, and a power cut can still undo them."""
        folder.mkdir()
        for name, file in list(self.files.items()):
            place = folder / Path(name).name
            if Path(name).parent == store.parent:
                place.write_bytes(Path(name).read_bytes())
                left = self.files[str(place)] = DiskFile(bytes(file.durable), has_name=file.has_name)
                left.unsynced = list(file.unsynced)
        return folder / store.name

    def count_call(self, call: str, path: str) -> None:
        """Count an I/O call; raise if it was planned to fail."""
        if self.before_call is not None:
            self.before_call(call, path)
        self.calls += 1
        if self._failing is not None and self.calls in self._failing[0]:
            raise self._failing[1]()

    def sync_folder(self) -> None:
        self.deleted.clear()
        for file in self.files.values():
            file.has_name = True

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        if self.read_only:
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[0] |= apsw.SQLITE_OPEN_READONLY
        return FaultyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.count_call("delete", filename)
        super().xDelete(filename, syncdir)
        file = self.files.pop(filename, None)
        if file is not None and file.has_name:
            self.deleted[filename] = file
        if syncdir:
            self.sync_folder()
        if filename.endswith("-wal"):
            self.synced_log_writes = self.log_writes  # its pages were copied into the database before


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        self.disk = disk
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        place = Path(self.path)
        is_new = bool(self.path) and not place.exists()
        if self.path and self.path not in disk.files:
            content = b"" if is_new else place.read_bytes()
            disk.files[self.path] = DiskFile(content, has_name=not is_new)
        self.file = disk.files[self.path] if self.path else DiskFile()
        self._is_log = self.path.endswith("-wal")
        self._syncs_folder = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _JOURNALS)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        if self.disk.counts_reads:
            self.disk.count_call("read", self.path)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.count_call("write", self.path)
        if self.disk.is_full:
            super().xWrite(bytes(data)[: len(data) // 2], offset)
            raise apsw.FullError("database or disk is full")
        super().xWrite(data, offset)
        copy = bytes(data)

        def write(image: bytearray, random: Random | None) -> None:
            for start in range(0, len(copy), SECTOR) if random else (0,):
                if random is None or random.random() < 0.5:
                    part = copy[start : start + SECTOR] if random else copy
                    image.extend(bytes(max(0, offset + start - len(image))))
                    image[offset + start : offset + start + len(part)] = part

        self.file.unsynced.append(write)
        self.disk.log_writes += self._is_log

    def xTruncate(self, size: int) -> None:
        self.disk.count_call("truncate", self.path)
        super().xTruncate(size)

        def truncate(image: bytearray, random: Random | None) -> None:
            del image[size:]

        self.file.unsynced.append(truncate)

    def xSync(self, flags: int) -> None:
        self.disk.count_call("sync", self.path)
        if self.disk.refuses_sync is not None and self.path.endswith(self.disk.refuses_sync):
            raise self.disk.refusal
        super().xSync(flags)
        self.disk.syncs.append(self.path)
        self.disk.sync_flags.add(flags & ~apsw.SQLITE_SYNC_DATAONLY)
        self.file.sync()
        if self._is_log:
            self.disk.synced_log_writes = self.disk.log_writes
        if self._syncs_folder:
            self._syncs_folder = False
            self.disk.sync_folder()
