"""`turnledger chats export` and `import`: chats as files, out of a store and into one."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from turnledger.cli.at_store import NOT_DONE, AsJson, Config, Store, run, say
from turnledger.cli.chats import Owner, opened
from turnledger.cli.own_store import store_url
from turnledger.errors import InvalidInput
from turnledger.ledger import OWNER, Ledger
from turnledger.model.ids import ConversationId
from turnledger.model.printable import plain
from turnledger.model.transfer_report import Did, ImportReport

PIECE = 1024 * 1024
"""Bytes that are read at once."""
NOT_TAKEN = frozenset({Did.CONFLICT, Did.REFUSED})
STANDARD = "-"

Tell = Callable[[ImportReport], None]


class Format(StrEnum):
    """What kind of file."""

    JSONL = "jsonl"
    MARKDOWN = "markdown"


def export(
    chats: Annotated[
        list[str] | None, typer.Argument(metavar="CHAT…", help="Ids, or conversation_keys.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All chats that lists show.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: standard output.")] = None,
    format: Annotated[Format, typer.Option(help="jsonl can be imported, markdown is for reading.")] = (
        Format.JSONL
    ),
    owner: Owner = OWNER,
    scope: Annotated[
        str | None, typer.Option(help="The scope of conversation_keys; with --all: chats of this scope only.")
    ] = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """Write chats to a file: with all their branches, or as Markdown for people."""
    run(lambda: _export(store_url(store, config), chats or [], everything, output, format, owner, scope))


async def _export(
    url: str,
    names: list[str],
    everything: bool,
    output: Path | None,
    format: Format,
    owner: str,
    scope: str | None,
) -> None:
    if everything == bool(names):
        raise InvalidInput("Name chats to export, or say --all.")
    if everything and format is Format.MARKDOWN:
        raise InvalidInput("Markdown is for chats that are named. Leave --format out to export --all.")
    async with opened(url) as ledger:
        with _writing(output) as file:
            if everything:
                await _write(file, ledger.transfer.export_all(owner=owner, scope=scope))
            for name in names:
                id = await _id_of(ledger, name, owner, scope or "")
                if format is Format.MARKDOWN:
                    text = ledger.transfer.markdown(id, owner=owner)
                    await _write(file, (part.encode() async for part in text))
                else:
                    await _write(file, ledger.transfer.export(id, owner=owner))


async def _id_of(ledger: Ledger, name: str, owner: str, scope: str) -> str:
    """The chat that somebody names by its id or its conversation_key."""
    if name.startswith(ConversationId.prefix):
        return name
    found = await ledger.conversation(conversation_key=name, owner=owner, scope=scope, create=False)
    return found.id


async def _write(file: BinaryIO, pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        file.write(piece)


@contextmanager
def _writing(output: Path | None) -> Iterator[BinaryIO]:
    """The file to write to: under its name only once it is whole."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = output.with_name(f"{output.name}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(output)
    except OSError as problem:
        raise InvalidInput(f"{output} cannot be written: {problem.strerror}.") from None
    finally:
        unfinished.unlink(missing_ok=True)


def import_chats(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Of an export; - for standard input.")],
    owner: Owner = OWNER,
    scope: Annotated[
        str | None, typer.Option(help="Put them into this scope, whatever the file says.")
    ] = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take in chats from a file. What is there is never changed; the same file again changes nothing."""
    done: Counter[Did] = Counter()

    def tell(report: ImportReport) -> None:
        done[report.did] += 1
        typer.echo(msgspec.json.encode(report).decode() if as_json else _told(report))

    run(lambda: _import(store_url(store, config), file, owner, scope, tell))
    say(", ".join(f"{count} {did}" for did, count in done.items()) or "The file is empty.")
    if any(did in NOT_TAKEN for did in done):
        raise typer.Exit(NOT_DONE)


def _told(report: ImportReport) -> str:
    words = [f"line {report.line}:", report.did.value]
    words += [name for name in (report.chat, report.turn) if name]
    if report.turns is not None:
        words.append(f"({report.turns} turns)")
    return plain(" ".join([*words, report.why]).rstrip())


async def _import(url: str, name: str, owner: str, scope: str | None, tell: Tell) -> None:
    async with await Ledger.open(url) as ledger:
        with _reading(name) as file:
            pieces = iter(lambda: file.read(PIECE), b"")
            async for report in ledger.transfer.import_lines(pieces, owner=owner, scope=scope):
                tell(report)


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as problem:
        raise InvalidInput(f"{name} cannot be read: {problem.strerror}.") from None
