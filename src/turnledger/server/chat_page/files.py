"""The built chat page: read once, and compressed for clients that accept it.

An inline page contains its script and style, and has a policy under which nothing else runs.
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
"""The output of `make page`, which packages include."""
INDEX, ICON, OFFLINE, ASSETS = "index.html", "favicon.svg", "service-worker.js", "assets"
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; font-src 'self'; frame-src 'self'; manifest-src 'self'; "
    b"base-uri 'none'; form-action 'none'; "
    b"require-trusted-types-for 'script'; trusted-types turnledger dompurify"
)
"""The page may run its own files, call this server, and show images in the chat."""
OFFLINE_POLICY = b"default-src 'none'; connect-src 'self'"
"""The service worker may request the page from this server."""

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
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
        self.packed_tag = f'{self.tag[:-1]}-gzip"'
        self._is_packed = suffix in _IS_PACKED

    @cached_property
    def packed(self) -> bytes | None:
        """The compressed file; None if it is not smaller."""
        packed = b"" if self._is_packed else gzip.compress(self.content, 9, mtime=0)
        return packed if 0 < len(packed) < len(self.content) else None


class BuiltPage:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        page_files = {name: PageFile(name, content) for name, content in files.items()}
        self.index = page_files.get(INDEX)
        """None: the page was not built."""
        self.icon = page_files.get(ICON)
        self.offline = page_files.get(OFFLINE)
        self.assets = {
            name.removeprefix(f"{ASSETS}/"): file
            for name, file in page_files.items()
            if name.startswith(f"{ASSETS}/")
        }

    @classmethod
    def read(cls, folder: Path) -> BuiltPage:
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
    """Make the page of this name from its parts `.html`, `.css` and `.js`. Its policy allows its own script
    and style, `more`, and nothing else."""
    text, allowed = _read(f"{name}.html"), ["default-src 'none'"]
    for kind, ending in (("script", "js"), ("style", "css")):
        placeholder = f"/*{kind}*/"
        if placeholder in text:
            content = _read(f"{name}.{ending}")
            text = text.replace(placeholder, content)
            allowed.append(f"{kind}-src {_source(content)}")
    return InlinePage(text, "; ".join([*allowed, *more, *ALWAYS]).encode())


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _source(text: str) -> str:
    """Return the hash by which a policy names an inline script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
