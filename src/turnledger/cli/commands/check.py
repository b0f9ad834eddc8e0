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

FOUND = 1
"""Exit code: the store has errors. 0: none."""


def check(
    url: Annotated[str | None, typer.Argument(metavar="STORE", help="The same as --store.")] = None,
    store: Store = None,
    config: Config = None,
    limit: Annotated[int, typer.Option(min=1, help="How many findings are enough.")] = 1_000,
    as_json: AsJson = False,
) -> None:
    """Check a store against the promises, and report what is wrong with it.

    Only reads, so the store may be in use. Prints a line for each finding, then a summary. Exits with 0 if
    there is none, 1 if something is wrong, 2 if the store cannot be read.
    """
    import asyncio

    if url is not None and store is not None:
        raise typer.BadParameter("name the store once, by --store or without")
    from turnledger.cli.backend.own_store import store_url

    report = asyncio.run(_look(store_url(store if url is None else url, config), limit))
    if as_json:
        typer.echo(json_of(document_of(report)))
    else:
        for finding in report.findings:
            typer.echo(line_of(finding))
        typer.echo(summary_of(report))
    if any(finding.is_damage for finding in report.findings):
        raise typer.Exit(FOUND)


async def _look(url: str, limit: int) -> Report:
    import asyncio

    from turnledger.engine.check.check import CheckRequest
    from turnledger.engine.check.check import check as check_store
    from turnledger.stores.url import visit_store

    visit = await visit_store(url)
    try:
        with Progress("Checking") as progress:
            looking = asyncio.ensure_future(visit.read(check_store, CheckRequest(at_rest=True, limit=limit)))
            while not (await asyncio.wait([looking], timeout=progress.pace))[0]:
                progress.advance(0)
            return await looking
    finally:
        await visit.close()


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
    counted = {name: getattr(report, name) for name in names}
    return {
        "ok": not any(finding.is_damage for finding in report.findings),
        "is_whole": report.is_whole,
        **counted,
        "findings": findings,
    }


def line_of(finding: Finding) -> str:
    """Return a finding on one line: the rule, the place, the sentence."""
    owner = f"owner {finding.owner!r}" if finding.owner is not None else None
    parts = (owner, finding.conversation, finding.branch, finding.turn)
    place = " ".join(part for part in parts if part is not None)
    return plain(": ".join(part for part in (finding.rule, place, finding.message) if part))


def summary_of(report: Report) -> str:
    damage = sum(finding.is_damage for finding in report.findings)
    verdict = "nothing is wrong" if not damage else f"{damage} thing{'s' if damage > 1 else ''} wrong"
    if not report.is_whole:
        verdict += ", and not all was looked at"
    if len(report.findings) > damage:
        verdict += "; the store is not at rest"
    if report.turns_without_checksum:
        verdict += f"; {report.turns_without_checksum} turns from older versions have no checksum"
    counted = (
        (report.conversations, "conversations"),
        (report.branches, "branches"),
        (report.turns, "turns"),
        (report.attempts, "attempts kept aside or running"),
    )
    return f"{', '.join(f'{count} {what}' for count, what in counted)}: {verdict}."
