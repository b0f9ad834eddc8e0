"""`turnledger doctor`: find problems of the server and their remedies."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.server.doctor import Diagnosis

CHECK_FAILED = 1
"""Exit code: a check failed. 0: at most warnings."""


def doctor(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="As for `serve`, like the following options.")
    ] = None,
    upstream: Annotated[str | None, typer.Option(metavar="URL")] = None,
    api_key_env: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    host: Annotated[str | None, typer.Option()] = None,
    port: Annotated[int | None, typer.Option()] = None,
    workers: Annotated[int | None, typer.Option(metavar="N")] = None,
    insecure: Annotated[bool | None, typer.Option("--insecure")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Check settings, store, disk, port, upstreams and clock, and suggest remedies.

    Takes the main flags of `serve`, to check what that would use. A server may be running. Changes nothing,
    but creates your data folder if needed. Exits with 1 if a check fails, with 0 otherwise, even with
    warnings.
    """
    flags = {name: value for name, value in locals().items() if name not in ("config", "as_json")}
    findings = _examine(flags, config)
    typer.echo(to_json(findings) if as_json else to_text(findings))
    if any(each.level == "FAIL" for each in findings):
        raise typer.Exit(CHECK_FAILED)


def _examine(flags: dict[str, Any], config: Path | None) -> list[Diagnosis]:
    import asyncio

    from turnledger.server.config.file import load_settings
    from turnledger.server.doctor import examine

    load = partial(load_settings, flags, config=config, environ=os.environ)
    return asyncio.run(examine(load, os.environ))


def to_text(findings: list[Diagnosis]) -> str:
    """Return one line for each finding, one for its remedy, and a summary."""
    width = max(len(each.subject) for each in findings)
    lines = []
    for each in findings:
        lines.append(plain(f"{each.level:4}  {each.subject:{width}}  {each.message}"))
        if each.remedy:
            lines.append(plain(f"{'':{width + 8}}{each.remedy}"))
    return "\n".join([*lines, summary_of(findings)])


def to_json(findings: list[Diagnosis]) -> str:
    import json

    import msgspec

    is_ok = all(each.level != "FAIL" for each in findings)
    return json.dumps({"ok": is_ok, "findings": msgspec.to_builtins(findings)}, indent=2)


def summary_of(findings: list[Diagnosis]) -> str:
    fails = sum(each.level == "FAIL" for each in findings)
    warns = sum(each.level == "WARN" for each in findings)
    parts = [
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((fails, "failure"), (warns, "warning"))
        if count
    ]
    return f"{' and '.join(parts)}." if parts else "No problems found."
