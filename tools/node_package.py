"""A folder that Node builds: installed when its lock file changed, built when its sources did.

Needs only Python: it also runs when a wheel is built from a clone.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.node_lock import Packages, locked, needed, write_part
from tools.notices import FILE_NAME, NoLicence, notices

ROOT = Path(__file__).parents[1]
MODULES = "node_modules"
Version = tuple[int, int]


class CannotBuild(Exception):
    """The build failed; the message has the reason and the remedy."""


class NodePackage:
    def __init__(
        self,
        name: str,
        folder: str,
        sources: tuple[str, ...],
        into: str,
        *,
        node: Version,
        swaps: bool = False,
        has_notices: bool = False,
        build_tools: tuple[str, ...] | None = None,
        root: Path = ROOT,
    ) -> None:
        self.name = name
        self.folder = root / folder
        self.into = root / into
        self._root = root
        self._sources = sources
        self._node = node
        # If the result may be in use: build beside it, then swap.
        self._swaps = swaps
        self._has_notices = has_notices
        # The development packages that a build needs; None for all of them.
        self._build_tools = build_tools

    @property
    def _stamp(self) -> Path:
        return self.into / ".built-from"

    @property
    def is_there(self) -> bool:
        """Whether it was built, from any sources."""
        return self._stamp.exists()

    @property
    def is_fresh(self) -> bool:
        """Whether it was built from the current sources."""
        return self.is_there and self._stamp.read_text().strip() == self._fingerprint()

    @property
    def missing(self) -> str | None:
        """What must be installed before it can be built, or None."""
        wanted = ".".join(map(str, self._node))
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            return f"{self.name} needs Node {wanted} or newer, with npm, to be built (https://nodejs.org)"
        installed = subprocess.run(
            [node, "--version"], capture_output=True, text=True, check=False
        ).stdout.strip()
        found = re.match(r"v(\d+)\.(\d+)", installed)
        if found is None or (int(found[1]), int(found[2])) < self._node:
            return (
                f"{self.name} needs Node {wanted} or newer to be built, not {installed} (https://nodejs.org)"
            )
        return None

    def build(self) -> bool:
        """Build it unless it is fresh, one process at a time; return whether there was anything to do. Raises
        CannotBuild."""
        with self._alone():
            if self.is_fresh:
                return False
            if (missing := self.missing) is not None:
                raise CannotBuild(missing)
            self._install_for_build()
            fingerprint = self._fingerprint()
            if self._swaps:
                self._build_beside()
            else:
                self._run("npm", "run", "--silent", "build")
            self._stamp.write_text(fingerprint + "\n")
            return True

    def install(self) -> None:
        """Install all packages, also those for tests. Raises CannotBuild."""
        with self._alone():
            if not self._has(self._locked()):
                self._install(self.folder)

    def _install_for_build(self) -> None:
        """Install what the build needs, which takes a quarter of the time; everything where more than that is
        installed already."""
        packages = self.needed()
        if self._has(packages):
            return
        if self._build_tools is None or self._installed().keys() - packages.keys():
            self._install(self.folder)
            return
        with TemporaryDirectory(prefix=".packages-", dir=self.folder) as name:
            folder = Path(name)
            write_part(self.folder, folder, self._build_tools, packages)
            self._install(folder)
            shutil.rmtree(self.folder / MODULES, ignore_errors=True)
            (folder / MODULES).rename(self.folder / MODULES)

    def _install(self, folder: Path) -> None:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
        self._run("npm", "ci", *options, folder=folder)

    def needed(self) -> Packages:
        """Return the locked packages that the build needs, by their places."""
        packages = self._locked()
        if self._build_tools is None:
            return packages
        manifest = json.loads((self.folder / "package.json").read_text("utf-8"))
        return needed(packages, [*manifest.get("dependencies", ()), *self._build_tools])

    def _build_beside(self) -> None:
        beside, former = (self.into.with_name(f".{self.into.name}-{word}") for word in ("new", "old"))
        try:
            self._run("npm", "run", "--silent", "build", "--", "--outDir", str(beside))
            if self._has_notices:
                (beside / FILE_NAME).write_text(self._notices(), "utf-8")
            if self.into.exists():
                self.into.rename(former)
            beside.rename(self.into)
        finally:
            for each in (beside, former):
                shutil.rmtree(each, ignore_errors=True)

    def _notices(self) -> str:
        try:
            return notices(self.folder)
        except NoLicence as problem:
            raise CannotBuild(str(problem)) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:  # on Windows
            yield
            return
        with (self.folder / "package.json").open() as lock:  # any existing file will do
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _fingerprint(self) -> str:
        digest = sha256()
        for path in self.files():
            content = sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(self._root).as_posix()} {content}\n".encode())
        return digest.hexdigest()

    def files(self) -> list[Path]:
        named = (self.folder / each for each in self._sources)
        found = (path for each in named for path in (each.rglob("*") if each.is_dir() else (each,)))
        return sorted({path.resolve() for path in found if path.is_file()})

    def _locked(self) -> Packages:
        return locked(self.folder / "package-lock.json")

    def _installed(self) -> Packages:
        hidden = self.folder / MODULES / ".package-lock.json"
        return locked(hidden) if hidden.exists() else {}

    def _has(self, packages: Packages) -> bool:
        """Whether these packages are installed, except those for other platforms."""
        installed = self._installed()
        return bool(installed) and all(
            (name in installed or about.get("optional", False))
            and installed.get(name, about).get("integrity") == about.get("integrity")
            for name, about in packages.items()
        )

    def _run(self, *command: str, folder: Path | None = None) -> None:
        words = [word for word in command if not word.startswith("-")]
        print(f"{self.name}: {' '.join(words[:3])} …", file=sys.stderr, flush=True)
        program = shutil.which(command[0]) or command[0]
        done = subprocess.run(
            [program, *command[1:]], cwd=folder or self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise CannotBuild(
                f"{self.name}: {' '.join(command)} failed:\n{done.stdout}{done.stderr}".rstrip()
            )


_SETTINGS = ("package.json", "package-lock.json", "tsconfig.json")
CLIENT = NodePackage(
    "The TypeScript client",
    "clients/typescript",
    ("src", "test", *_SETTINGS),
    "clients/typescript/dist",
    node=(20, 0),
)
PAGE = NodePackage(
    "The chat page",
    "web",
    (
        "src",
        "public",
        "index.html",
        "vite.config.ts",
        "offline-build.ts",
        *_SETTINGS,
        "../clients/typescript/src",
    ),
    "src/turnledger/server/chat_page/dist",
    node=(20, 19),
    swaps=True,
    has_notices=True,
    build_tools=("vite",),
)
