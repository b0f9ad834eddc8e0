"""`turnledger check`: check a store against the promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.options import AsJson, Config, Store
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import json_of
from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.engine.check.check import Report
    from turnledger.model.check import Finding

DAMAGED = 1
"""Exit code: the store has errors. 0: none."""


def check(
    url: Annotated[str | None, typer.Argument(metavar="STORE", help="The same as --store.")] = None,
    store: Store = None,
    config: Config = None,
    limit: Annotated[int, typer.Option(min=1, help="Stop after this many findings.")] = 1_000,
    as_json: AsJson = False,
) -> None:
    """Check a store against the promises, and report errors.

    Only reads, so the store may be in use. Prints a line for each finding, then a summary. Exits with 0 if
    there are no errors, 1 if there are, 2 if the store cannot be read.
    """
    import asyncio

    if url is not None and store is not None:
        raise typer.BadParameter("give the store once, as --store or as an argument")
    from turnledger.cli.backend.own_store import store_url

    report = asyncio.run(_run_check(store_url(store if url is None else url, config), limit))
    if as_json:
        typer.echo(json_of(document_of(report)))
    else:
        for finding in report.findings:
            typer.echo(line_of(finding))
        typer.echo(summary_of(report))
    if any(finding.is_damage for finding in report.findings):
        raise typer.Exit(DAMAGED)


async def _run_check(url: str, limit: int) -> Report:
    import asyncio

    from turnledger.engine.check.check import CheckRequest
    from turnledger.engine.check.check import check as check_store
    from turnledger.stores.url import open_read_only

    store = await open_read_only(url)
    try:
        with Progress("Checking") as progress:
            task = asyncio.ensure_future(store.inspect(check_store, CheckRequest(at_rest=True, limit=limit)))
            while not (await asyncio.wait([task], timeout=progress.poll_interval))[0]:
                progress.advance(0)
            return await task
    finally:
        await store.close()


def document_of(report: Report) -> dict[str, Any]:
    findings = [
        {
            "rule": finding.rule,
            "is_damage": finding.is_damage,
            "owner": finding.owner,
            "conversation": finding.conversation,
            "branch": finding.branch,
            "turn": finding.turn,
            "message": finding.message,
        }
        for finding in report.findings
    ]
    names = ("conversations", "branches", "turns", "attempts", "turns_without_checksum")
    counts = {name: getattr(report, name) for name in names}
    return {
        "ok": not any(finding.is_damage for finding in report.findings),
        "is_whole": report.is_whole,
        **counts,
        "findings": findings,
    }


def line_of(finding: Finding) -> str:
    """Return a finding on one line: the rule, the place, the sentence."""
    owner = f"owner {finding.owner!r}" if finding.owner is not None else None
    parts = (owner, finding.conversation, finding.branch, finding.turn)
    location = " ".join(part for part in parts if part is not None)
    return plain(": ".join(part for part in (finding.rule, location, finding.message) if part))


def summary_of(report: Report) -> str:
    damage = sum(finding.is_damage for finding in report.findings)
    verdict = "no errors" if not damage else f"{damage} error{'s' if damage > 1 else ''}"
    if not report.is_whole:
        verdict += ", check incomplete"
    if len(report.findings) > damage:
        verdict += "; the store is not at rest"
    if report.turns_without_checksum:
        verdict += f"; {report.turns_without_checksum} turns from older versions have no checksum"
    counts = (
        (report.conversations, "conversations"),
        (report.branches, "branches"),
        (report.turns, "turns"),
        (report.attempts, "attempts set aside or running"),
    )
    return f"{', '.join(f'{count} {noun}' for count, noun in counts)}: {verdict}."
