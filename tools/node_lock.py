"""Part of an npm lock file: the packages that some named ones need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Packages = dict[str, dict[str, Any]]
_FIELDS = ("dependencies", "optionalDependencies", "peerDependencies")


def locked(path: Path) -> Packages:
    """Return the packages of a lock file by their places, without the one that it belongs to."""
    found: Packages = json.loads(path.read_text("utf-8"))["packages"]
    return {place: about for place, about in found.items() if place}


def needed(packages: Packages, names: Sequence[str]) -> Packages:
    """Return the packages with these names, and all that they depend on."""
    found: Packages = {}
    wanted = [("", name) for name in names]
    while wanted:
        place = _find(packages, *wanted.pop())
        if place is not None and place not in found:
            about = found[place] = packages[place]
            wanted.extend((place, name) for field in _FIELDS for name in about.get(field, ()))
    return {place: about for place, about in packages.items() if place in found}


def _find(packages: Packages, place: str, name: str) -> str | None:
    """Return where Node finds a package from another one; None for one that is not installed."""
    return next((each for each in _places(place, name) if each in packages), None)


def _places(place: str, name: str) -> Iterator[str]:
    while place:
        yield f"{place}/node_modules/{name}"
        place = place.rpartition("node_modules/")[0].rstrip("/")
    yield f"node_modules/{name}"


def write_part(folder: Path, into: Path, tools: Sequence[str], packages: Packages) -> None:
    """Write the package.json and the lock file of a folder with only these development packages, and what is
    `needed` for them."""
    manifest, lock = (
        json.loads((folder / name).read_text("utf-8")) for name in ("package.json", "package-lock.json")
    )
    part = {"devDependencies": {name: manifest["devDependencies"][name] for name in tools}}
    own = {"": {**lock["packages"][""], **part}}
    (into / "package.json").write_text(json.dumps({**manifest, **part}), "utf-8")
    (into / "package-lock.json").write_text(json.dumps({**lock, "packages": {**own, **packages}}), "utf-8")
