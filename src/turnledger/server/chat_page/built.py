"""The chat page as it was built: read once, and given out as it is, compressed to whom that is welcome."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).parents[1] / "page"
"""Where `make page` puts it; in a package it is there."""
INDEX, ICON, ASSETS = "index.html", "favicon.svg", "assets"
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    b"require-trusted-types-for 'script'; trusted-types turnledger dompurify"
)
"""What the page may do: run what it was built of, ask this server, show images that it was given."""

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
_IS_PACKED = frozenset({".png", ".webp", ".woff2"})
_UNKNOWN = "application/octet-stream"


class PageFile:
    """One file of it."""

    def __init__(self, name: str, content: bytes) -> None:
        suffix = PurePosixPath(name).suffix
        self.kind = _KINDS.get(suffix, _UNKNOWN)
        self.content = content
        self.tag = f'"{sha256(content).hexdigest()[:32]}"'
        """Its ETag as it is."""
        self.packed_tag = f'{self.tag[:-1]}-gzip"'
        """Its ETag as it is compressed: other bytes have another."""
        self._is_packed = suffix in _IS_PACKED

    @cached_property
    def packed(self) -> bytes | None:
        """Compressed, the first time that somebody takes it so; None where that makes it no smaller."""
        packed = b"" if self._is_packed else gzip.compress(self.content, 9, mtime=0)
        return packed if 0 < len(packed) < len(self.content) else None


class BuiltPage:
    """The files of a page, by their paths within its folder."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        known = {name: PageFile(name, content) for name, content in files.items()}
        self.index = known.get(INDEX)
        """None: the page was not built."""
        self.icon = known.get(ICON)
        self.assets = {
            name.removeprefix(f"{ASSETS}/"): file
            for name, file in known.items()
            if name.startswith(f"{ASSETS}/")
        }

    @classmethod
    def read(cls, folder: Path) -> BuiltPage:
        """The page in a folder; one without files if there is none."""
        found = (path for path in folder.rglob("*") if path.is_file())
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in found})


def is_built() -> bool:
    """Whether this package has its page."""
    return (FOLDER / INDEX).is_file()


@cache
def own_page() -> BuiltPage:
    """The page of this package, as it is when somebody first asks."""
    return BuiltPage.read(FOLDER)
