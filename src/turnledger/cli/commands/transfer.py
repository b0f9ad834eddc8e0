"""`turnledger chats export` and `import`, chats as files; `turnledger backup`, a copy of a store in use."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from turnledger.cli.backend.backend import Backend, Where
from turnledger.cli.backend.completion import chats_beginning_with
from turnledger.cli.failures import NOT_DONE
from turnledger.cli.options import AsJson, Config, Owner, Server, Store
from turnledger.cli.output.file import Write, writing_to
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import is_terminal, json_of, printable_json, say
from turnledger.errors import InvalidInput
from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.model.transfer import ImportReport


PIECE = 1024 * 1024
LOOK = 0.2
"""Seconds between two looks for Ctrl-C during a read."""
NOT_TAKEN = frozenset({"conflict", "refused"})
STANDARD = "-"
STANDARD_OUTPUT = (STANDARD, "/dev/stdout")


class Format(StrEnum):
    JSONL = "jsonl"
    MARKDOWN = "markdown"


def export(
    chats: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHAT…", help="Ids, or conversation_keys.", autocompletion=chats_beginning_with
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All chats that lists show.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: -, standard output.")] = None,
    format: Annotated[Format, typer.Option(help="jsonl can be imported, markdown is for reading.")] = (
        Format.JSONL
    ),
    owner: Owner = None,
    scope: Annotated[
        str | None, typer.Option(help="The scope of conversation_keys; with --all: chats of this scope only.")
    ] = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """Write chats to a file: with all their branches, or as Markdown for people."""
    names, file = chats or [], None if str(output) in STANDARD_OUTPUT else output
    if everything == bool(names):
        raise InvalidInput("Name chats to export, or use --all.")
    if everything and format is Format.MARKDOWN:
        raise InvalidInput("--format markdown works with named chats only. Omit it to export --all.")

    async def work(place: Backend) -> None:
        with _writing(file, format) as write, _progress_of(file) as progress:
            if everything:
                await _write(place.export_all(scope=scope), write, progress)
            for name in names:
                await _write(place.export(name, scope=scope or "", format=format), write, progress)

    Where(server=server, store=store, config=config, owner=owner).do(work)


async def _write(lines: AsyncIterator[bytes], write: Write, progress: Progress) -> None:
    async for line in lines:
        write(line)
        progress.advance(len(line))


def _progress_of(output: Path | None) -> Progress:
    """Return a bar for a file; none for a pipe, which may lead to a pager."""
    is_shown = output is not None or (sys.stdout is not None and _is_file(sys.stdout.buffer))
    return Progress("Exporting", in_bytes=True, is_shown=is_shown)


@contextmanager
def _writing(output: Path | None, format: Format) -> Iterator[Write]:
    """Yield the function that writes to the file, or to the standard output."""
    if output is not None:
        with writing_to(output) as write:
            yield write
    elif sys.stdout is None:  # closed by the parent process
        yield lambda _: None
    else:
        yield _to_terminal(format) if is_terminal() else sys.stdout.buffer.write
        sys.stdout.buffer.flush()


def _to_terminal(format: Format) -> Write:
    """Return a function that prints only printable characters; files keep the text as it is."""
    shown = printable_json if format is Format.JSONL else plain

    def write(piece: bytes) -> None:
        text = piece.decode()
        lines = text.split("\n")
        typer.echo("\n".join(map(shown, lines)), nl=False)

    return write


def import_chats(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Of an export; - for standard input.")],
    owner: Owner = None,
    scope: Annotated[
        str | None, typer.Option(help="Put them into this scope, whatever the file says.")
    ] = None,
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Import chats from a file. Existing chats are never changed; importing the same file again changes
    nothing."""

    async def work(place: Backend) -> Counter[str]:
        done: Counter[str] = Counter()
        with _reading(file) as source, Progress("Importing", _size(source), in_bytes=True) as progress:
            async for report in place.import_lines(_Counted(source, progress), scope=scope):
                done[report.did.value] += 1
                progress.tell(json_of(report) if as_json else _report_line(report))
        return done

    done = Where(server=server, store=store, config=config, owner=owner, creates_store=True).do(work)
    say(", ".join(f"{count} {did}" for did, count in done.items()) or "The file is empty.")
    if NOT_TAKEN.intersection(done):
        raise typer.Exit(NOT_DONE)


def _report_line(report: ImportReport) -> str:
    words = [f"line {report.line}:", report.did.value]
    words += [name for name in (report.chat, report.turn) if name]
    if report.turns is not None:
        words.append(f"({report.turns} turns)")
    return plain(" ".join([*words, report.why]).rstrip())


class _Counted:
    """A file that reports how far it was read."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self._done = 0

    def __iter__(self) -> Iterator[bytes]:
        # Whatever is available: the writer of a pipe may wait for our reports before it writes more.
        read: Callable[[int], bytes] = getattr(self._file, "read1", self._file.read)
        while piece := self._counted(read, PIECE):
            yield piece

    def read(self, size: int, /) -> bytes:
        return self._counted(self._file.read, size)

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, place: int, /) -> None:
        self._file.seek(place)
        self._done = place

    def tell(self) -> int:
        return self._file.tell()

    def _counted(self, read: Callable[[int], bytes], size: int) -> bytes:
        self._progress.reach(self._done)  # the previous piece is processed
        with _ended_by_ctrl_c():
            piece = read(size)
        self._done += len(piece)
        return piece


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C interrupt a blocking read: the event loop would note it, but never get to run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _is_ending():
            raise KeyboardInterrupt
        with _interrupted_at_times():
            yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupted_at_times() -> Iterator[None]:
    """Interrupt a blocking read a few times a second. A signal that arrives just before the read blocks has
    set a flag that only the return of the read would make Python look at."""
    if not hasattr(signal, "setitimer"):  # on Windows
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        if sys.stdin is None:
            raise InvalidInput("Standard input is closed. Name a file.")
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as problem:
        raise InvalidInput(f"{name} cannot be read: {problem.strerror}.") from None


def _is_ending() -> bool:
    """Whether Ctrl-C was pressed before, and waits for the event loop."""
    import asyncio

    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _size(file: BinaryIO) -> int | None:
    return os.fstat(file.fileno()).st_size if _is_file(file) else None


def _is_file(file: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError):  # not a real file, as in a test
        return False


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy. It must not exist yet.")],
    store: Store = None,
    config: Config = None,
) -> None:
    """Copy a store into one file, as it is at one moment, while servers keep using it.

    The copy is complete and on disk when the command ends, or does not exist. Only its user may read it. To
    restore it, stop the server and put it in place of the store's file, without the old `-wal` and `-shm`.
    """
    from turnledger.cli.backend.own_store import store_url
    from turnledger.stores.url import back_up_store

    with ExitStack() as shown:
        bars: list[Progress] = []

        def report(done: int, total: int) -> None:
            if not bars:
                bars.append(shown.enter_context(Progress("Copying", total, in_bytes=True)))
            bars[0].reach(done)

        back_up_store(store_url(store, config), str(file), report)
    typer.echo(f"{file}: {file.stat().st_size} bytes. To check it: turnledger check sqlite:///{file}")
