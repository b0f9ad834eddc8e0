"""`make sbom`: a bill of materials in CycloneDX, made from the lock files. Needs no network.

It lists the packages of an installation with each extra, those bundled into the chat page, and those for
development only (`excluded`). The same locks give the same bytes.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).parents[1]
INTO = "dist/turnledger.cdx.json"
REQUIRED, OPTIONAL, EXCLUDED = "required", "optional", "excluded"
CORE, DEVELOPMENT = "requirements.lock", "requirements-dev.lock"
NODE_LOCKS = ("web/package-lock.json", "clients/typescript/package-lock.json")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)[^\n\\]*((?:\\\n[^\n\\]*)*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

Component = dict[str, Any]


def extras(root: Path = ROOT) -> list[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return list(project["optional-dependencies"])


def pinned(lock: Path) -> dict[str, tuple[str, list[str]]]:
    """Return the packages that a Python lock pins: name → version, and the hashes of its files."""
    found = _PINNED.findall(lock.read_text("utf-8"))
    return {name.lower(): (version, _HASH.findall(rest)) for name, version, rest in found}


def bill(root: Path = ROOT) -> dict[str, Any]:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    components: dict[str, Component] = {}
    for component in (*_python(root), *_node(root)):
        known = components.setdefault(component["purl"], component)
        if known is not component:
            known["properties"] = sorted(
                (*known["properties"], *component["properties"]), key=lambda each: str(each["value"])
            )
            known["scope"] = min(known["scope"], component["scope"], key=_order)
    listed = [components[purl] for purl in sorted(components)]
    serial = uuid5(NAMESPACE_URL, json.dumps(listed, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/{project['name']}@{project['version']}",
                "purl": f"pkg:pypi/{project['name']}@{project['version']}",
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": listed,
    }


def _order(scope: str) -> int:
    return (REQUIRED, OPTIONAL, EXCLUDED).index(scope)


def _python(root: Path) -> Iterator[Component]:
    locks = [(CORE, REQUIRED), *((f"requirements-{extra}.lock", OPTIONAL) for extra in extras(root))]
    for name, scope in (*locks, (DEVELOPMENT, EXCLUDED)):
        for package, (version, hashes) in pinned(root / name).items():
            yield _component(f"pkg:pypi/{package}@{version}", package, version, scope, name) | {
                "hashes": [{"alg": "SHA-256", "content": each} for each in hashes]
            }


def _node(root: Path) -> Iterator[Component]:
    for name in NODE_LOCKS:
        locked = json.loads((root / name).read_text("utf-8"))["packages"]
        for place, about in locked.items():
            package = place.rpartition("node_modules/")[2]
            if not package or about.get("link"):
                continue
            scope = EXCLUDED if about.get("dev") or about.get("optional") else OPTIONAL
            purl = f"pkg:npm/{quote(package, safe='/')}@{about['version']}"
            component = _component(purl, package, about["version"], scope, name)
            kind, _, digest = about.get("integrity", "").partition("-")
            if kind == "sha512":
                content = base64.b64decode(digest).hex()
                component["hashes"] = [{"alg": "SHA-512", "content": content}]
            if about.get("license"):
                component["licenses"] = [{"expression": about["license"]}]
            yield component


def _component(purl: str, name: str, version: str, scope: str, lock: str) -> Component:
    return {
        "type": "library",
        "bom-ref": purl,
        "purl": purl,
        "name": name,
        "version": version,
        "scope": scope,
        "properties": [{"name": "turnledger:lock", "value": lock}],
    }


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Write it to the named file, or to the default one."""
    into = root / (arguments[0] if arguments else INTO)
    into.parent.mkdir(parents=True, exist_ok=True)
    made = bill(root)
    into.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    print(f"{len(made['components'])} components: {into}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
