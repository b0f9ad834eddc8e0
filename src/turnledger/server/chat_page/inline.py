"""A page that is one answer, with its script and style in it, and a policy that lets nothing else run."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

ALWAYS = ("base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'")
_FOLDER = files("turnledger.server") / "pages"


class InlinePage(NamedTuple):
    """What is sent, and what it may do."""

    text: str
    policy: bytes


def inline_page(name: str, *more: str) -> InlinePage:
    """The page of this name, of the parts that it has: `.html`, `.css`, `.js`. Beside its own script and
    style its policy allows what `more` says, and nothing else."""
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
    """How a policy names an inline script or style: by what it is, to the letter."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
