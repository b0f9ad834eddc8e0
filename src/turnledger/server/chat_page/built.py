"""The built chat page: read once and served as it is, compressed for clients that accept it.

A page that is one answer carries its script and style, and a policy under which nothing else runs.
"""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Mapping
from functools import cache, cached_property
from hashlib import sha256
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import NamedTuple

FOLDER = Path(__file__).parent / "dist"
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
    def __init__(self, name: str, content: bytes) -> None:
        suffix = PurePosixPath(name).suffix
        self.kind = _KINDS.get(suffix, _UNKNOWN)
        self.content = content
        self.tag = f'"{sha256(content).hexdigest()[:32]}"'
        """Its ETag."""
        self.packed_tag = f'{self.tag[:-1]}-gzip"'
        """The ETag of its compressed form."""
        self._is_packed = suffix in _IS_PACKED

    @cached_property
    def packed(self) -> bytes | None:
        """The compressed file; None where that is no smaller."""
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
        """The page in a folder; without files if there is none."""
        found = (path for path in folder.rglob("*") if path.is_file())
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in found})


def is_built() -> bool:
    return (FOLDER / INDEX).is_file()


@cache
def own_page() -> BuiltPage:
    return BuiltPage.read(FOLDER)


ALWAYS = ("base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'")
_FOLDER = files("turnledger.server.chat_page")


class InlinePage(NamedTuple):
    text: str
    policy: bytes


def inline_page(name: str, *more: str) -> InlinePage:
    """The page of this name, made of its parts `.html`, `.css` and `.js`. Its policy allows its own script
    and style, what `more` says, and nothing else."""
    text, allowed = _read(f"{name}.html"), ["default-src 'none'"]
    for kind, ending in (("script", "js"), ("style", "css")):
        place = f"/*{kind}*/"
        if place in text:
            inside = _read(f"{name}.{ending}")
            text = text.replace(place, inside)
            allowed.append(f"{kind}-src {_source(inside)}")
    return InlinePage(text, "; ".join([*allowed, *more, *ALWAYS]).encode())


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _source(text: str) -> str:
    """How a policy names an inline script or style: by its hash."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
