"""`make audit`: query OSV, an open database, for known vulnerabilities in locked packages.

It checks the whole bill of materials at once, Python and Node packages. A vulnerability in something that
users install fails; one in a development tool is reported. If the database cannot be reached, it prints that
and does not fail.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tools.sbom import EXCLUDED, ROOT, bill

DATABASE = "https://api.osv.dev/v1/querybatch"
PATIENCE = 20.0
IGNORED: dict[str, str] = {}
"""Ids of vulnerabilities that do not affect us, and why."""


def vulnerabilities(components: list[dict[str, Any]], database: str) -> dict[str, list[str]]:
    """Return the ids of known vulnerabilities by purl. Raises OSError or ValueError if nothing is known."""
    queries = [{"package": {"purl": each["purl"]}} for each in components]
    request = Request(  # noqa: S310 - the address is ours
        database, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
        results = json.load(answer)["results"]
    if len(results) != len(components):
        raise ValueError(f"{len(results)} answers to {len(components)} questions")
    found = {
        each["purl"]: [known["id"] for known in result.get("vulns", ()) if known["id"] not in IGNORED]
        for each, result in zip(components, results, strict=True)
    }
    return {purl: ids for purl, ids in found.items() if ids}


def main(root: Path = ROOT, database: str = DATABASE) -> int:
    components = bill(root)["components"]
    try:
        found = vulnerabilities(components, database)
    except OSError as problem:
        print(f"{database} cannot be reached ({problem}): nothing was checked.")
        return 0
    except (ValueError, KeyError, TypeError) as problem:
        print(f"{database} answered in an unexpected form ({problem!r}): nothing was checked.")
        return 1
    tools = {each["purl"] for each in components if each["scope"] == EXCLUDED}
    for purl, ids in found.items():
        kind = "only for development" if purl in tools else "VULNERABLE"
        print(f"{purl}: {', '.join(ids)} ({kind}). See https://osv.dev/vulnerability/{ids[0]}")
    print(f"{len(components)} packages checked, {len(found)} with known vulnerabilities.")
    return 1 if found.keys() - tools else 0


if __name__ == "__main__":
    sys.exit(main())
