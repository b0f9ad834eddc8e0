"""Licences of the npm packages in a bundle, as one text, which has to accompany it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE_NAME = "THIRD_PARTY_NOTICES.txt"
_HEAD = "The scripts of this page contain these packages, under their own licences.\n"
_NAMES = ("license", "licence", "copying", "notice")


class NoLicence(Exception):
    """A package names no licence."""


def notices(folder: Path) -> str:
    """Return the licences of all packages bundled with the one in this folder, by name. Raises NoLicence."""
    parts = [_HEAD]
    for name, about, home in _bundled(folder):
        licence = about.get("license")
        texts = [path.read_text("utf-8").strip() for path in _licence_files(home)]
        if not licence and not texts:
            raise NoLicence(f"{name} {about.get('version')} has no licence: do not bundle it")
        head = f"{name} {about.get('version')} ({licence or 'see below'})"
        parts.append("\n\n".join([f"{'=' * len(head)}\n{head}\n{'=' * len(head)}", *texts]))
    return "\n\n".join(parts) + "\n"


def _bundled(folder: Path) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """Yield the packages of the lock file that are not only for building or for types."""
    locked = json.loads((folder / "package-lock.json").read_text("utf-8"))["packages"]
    for place, about in sorted(locked.items()):
        name = place.rpartition("node_modules/")[2]
        if name and not (about.get("dev") or about.get("optional") or about.get("link")):
            yield name, about, folder / place


def _licence_files(home: Path) -> list[Path]:
    found = [path for path in home.iterdir() if path.is_file()] if home.is_dir() else []
    return sorted(path for path in found if path.name.lower().startswith(_NAMES))
