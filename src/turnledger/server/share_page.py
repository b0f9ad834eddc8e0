"""The page that share links lead to: one answer, with a policy that lets nothing run but its own script."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

_FOLDER = files("turnledger.server") / "pages"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _source(text: str) -> str:
    """How a policy names an inline script or style: by what it is, to the letter."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_SCRIPT, _STYLE = _read("share.js"), _read("share.css")

PAGE_TEXT = _read("share.html").replace("/*style*/", _STYLE).replace("/*script*/", _SCRIPT)
POLICY = (
    f"default-src 'none'; script-src {_source(_SCRIPT)}; style-src {_source(_STYLE)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
).encode()
