"""Leases: a thread that renews the lease, and a lock file that the kernel releases when the process dies."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread

from turnledger.errors import InvalidId
from turnledger.model.ids import LeaseId

if sys.platform != "win32":
    import fcntl

_SUFFIX, _UNSEEN = ".lock", ".new"
_TRIES = 10

logger = logging.getLogger(__name__)


class LockFiles:
    """The lock files beside a store: one per lease, locked while its process lives. They only make a death
    known sooner; without them, missing beats show it later."""

    def __init__(self, path: str) -> None:
        self._store = Path(path)
        self._folder = Path(f"{path}-leases")
        self._own: int | None = None
        self._own_place: Path | None = None

    def take(self, id: LeaseId) -> None:
        """Create the file of this lease, locked before it is visible. If that fails, only logs a warning."""
        try:
            self._take(id)
        except OSError as problem:
            logger.warning(
                "no lock file in %s: %s. If this process dies, others notice only when its lease lapses",
                self._folder,
                problem.strerror or problem,
            )

    def _take(self, id: LeaseId) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                self._try_to_take(id)
                return
            except (FileNotFoundError, FileExistsError, BlockingIOError):
                # Another process removed the empty folder, or swept the file.
                if not tries_left:
                    raise

    def _try_to_take(self, id: LeaseId) -> None:
        if sys.platform == "win32":
            return  # without lock files, a death is detected when the lease lapses
        self._make_folder()
        unseen = self._folder / f"{id}{_UNSEEN}"
        file = os.open(unseen, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._own_place = unseen.rename(self._place(id))
        except OSError:
            os.close(file)
            with suppress(OSError):
                unseen.unlink()
            raise
        self._own = file

    def _make_folder(self) -> None:
        """Make the folder, accessible to the users of the store only."""
        mode = self._store.stat().st_mode & 0o666 if self._store.exists() else 0o600
        with suppress(FileExistsError):
            self._folder.mkdir(mode | mode >> 2 & 0o111)  # users who may read it may enter it

    def release(self) -> None:
        """Remove and unlock this process's file, and the folder if it was the last."""
        if self._own_place is not None:
            try:
                self._own_place.unlink(missing_ok=True)
            except OSError as problem:
                logger.warning("%s cannot be removed: %s", self._own_place, problem.strerror)
            self._own_place = None
        if self._own is not None:
            os.close(self._own)
            self._own = None
        with suppress(OSError):  # it is not empty, or another process is changing it
            self._folder.rmdir()

    def is_unlocked(self, id: LeaseId) -> bool:
        """Return whether the file exists and is unlocked: its process is gone. Never true for this process's
        own file, since a lock belongs to the opened file, and this opens it again."""
        return _if_unlocked(self._place(id), lambda: True)

    def is_there(self, id: LeaseId) -> bool:
        return os.path.exists(self._place(id))  # not Path.exists, which may raise

    def sweep(self, living: Collection[LeaseId]) -> None:
        """Remove the files of dead processes whose leases no row names any more. A process that is just
        locking such a file makes it again."""
        try:
            places = list(self._folder.iterdir())
        except OSError:
            return
        for place in places:
            id = _lease_of(place)
            if id is not None and (place.suffix == _UNSEEN or id not in living):
                _if_unlocked(place, partial(place.unlink, missing_ok=True))

    def _place(self, id: LeaseId) -> Path:
        return self._folder / f"{id}{_SUFFIX}"


def _lease_of(place: Path) -> LeaseId | None:
    if place.suffix not in (_SUFFIX, _UNSEEN):
        return None
    try:
        return LeaseId(place.stem)
    except InvalidId:
        return None


def _if_unlocked(place: Path, action: Callable[[], object]) -> bool:
    """Run the action while holding the lock of this file; return False if it is gone or locked."""
    if sys.platform == "win32":
        return False
    try:
        file = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that two concurrent checks do not block each other.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink == 0:
            return False  # removed between opening and locking; a file with its name now is another one
        action()
        return True
    except OSError:
        return False
    finally:
        os.close(file)


class LeaseKeeper:
    """Calls `beat` every `every` seconds from its own thread, whatever the event loop is doing."""

    def __init__(self, beat: Callable[[], None], every: float) -> None:
        self._beat = beat
        self._every = every
        self._ended = Event()
        self._thread = Thread(target=self._run, name="turnledger-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing and wait for the thread. Blocks at most for one beat."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._beat()
