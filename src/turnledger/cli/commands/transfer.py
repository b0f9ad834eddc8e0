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

from turnledger.cli.backend.completion import complete_chat
from turnledger.cli.commands.target import CommandTarget, on_target
from turnledger.cli.failures import FAILED
from turnledger.cli.options import Config, Store
from turnledger.cli.output.file import Write, atomic_writer
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import is_terminal, json_of, print_message, printable_json
from turnledger.errors import InvalidInput
from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.cli.backend.backend import Backend
    from turnledger.model.transfer import ImportReport


PIECE_BYTES = 1024 * 1024
CHECK_EVERY = 0.2
"""Seconds between two looks for Ctrl-C during a read."""
NOT_IMPORTED = frozenset({"conflict", "refused"})
STANDARD = "-"
STANDARD_OUTPUT = (STANDARD, "/dev/stdout")


class Format(StrEnum):
    JSONL = "jsonl"
    MARKDOWN = "markdown"


@on_target("scope", "as_json")
def export(
    target: CommandTarget,
    chats: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHAT…", help="Ids, or conversation_keys.", autocompletion=complete_chat),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All listed chats.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: -, standard output.")] = None,
    format: Annotated[Format, typer.Option(help="jsonl can be imported, markdown is for reading.")] = (
        Format.JSONL
    ),
    scope: Annotated[
        str | None, typer.Option(help="The scope of conversation_keys; with --all: only chats of this scope.")
    ] = None,
) -> None:
    """Write chats to a file: with all their branches, or as Markdown for people."""
    names, file = chats or [], None if str(output) in STANDARD_OUTPUT else output
    if everything == bool(names):
        raise InvalidInput("Give the chats to export, or use --all.")
    if everything and format is Format.MARKDOWN:
        raise InvalidInput("--format markdown works with named chats only. Omit it to export --all.")

    async def work(backend: Backend) -> None:
        with _open_output(file, format) as write, _progress_of(file) as progress:
            if everything:
                await _write(backend.export_all(scope=scope), write, progress)
            for name in names:
                await _write(backend.export(name, scope=scope or "", format=format), write, progress)

    target.run(work)


async def _write(lines: AsyncIterator[bytes], write: Write, progress: Progress) -> None:
    async for line in lines:
        write(line)
        progress.advance(len(line))


def _progress_of(output: Path | None) -> Progress:
    """Return a bar for a file; none for a pipe, which may lead to a pager."""
    is_shown = output is not None or (sys.stdout is not None and _is_file(sys.stdout.buffer))
    return Progress("Exporting", in_bytes=True, is_shown=is_shown)


@contextmanager
def _open_output(output: Path | None, format: Format) -> Iterator[Write]:
    """Yield the function that writes to the file, or to the standard output."""
    if output is not None:
        with atomic_writer(output) as write:
            yield write
    elif sys.stdout is None:  # closed by the parent process
        yield lambda _: None
    else:
        yield _to_terminal(format) if is_terminal() else sys.stdout.buffer.write
        sys.stdout.buffer.flush()


def _to_terminal(format: Format) -> Write:
    """Return a function that prints only printable characters; files keep the text as it is."""
    escape = printable_json if format is Format.JSONL else plain

    def write(piece: bytes) -> None:
        text = piece.decode()
        lines = text.split("\n")
        typer.echo("\n".join(map(escape, lines)), nl=False)

    return write


@on_target("scope", creates_store=True)
def import_chats(
    target: CommandTarget,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An exported file; - for standard input.")],
    scope: Annotated[str | None, typer.Option(help="Import into this scope, overriding the file.")] = None,
) -> None:
    """Import chats from a file. Existing chats are never changed; importing the same file again changes
    nothing."""

    async def work(backend: Backend) -> Counter[str]:
        counts: Counter[str] = Counter()
        with _open_input(file) as source, Progress("Importing", _size(source), in_bytes=True) as progress:
            async for report in backend.import_lines(_CountingReader(source, progress), scope=scope):
                counts[report.did.value] += 1
                progress.print_line(json_of(report) if target.as_json else _report_line(report))
        return counts

    counts = target.run(work)
    print_message(", ".join(f"{count} {did}" for did, count in counts.items()) or "The file is empty.")
    if NOT_IMPORTED.intersection(counts):
        raise typer.Exit(FAILED)


def _report_line(report: ImportReport) -> str:
    parts = [f"line {report.line}:", report.did.value]
    parts += [name for name in (report.chat, report.turn) if name]
    if report.turns is not None:
        parts.append(f"({report.turns} turns)")
    return plain(" ".join([*parts, report.why]).rstrip())


class _CountingReader:
    """A file that reports how far it was read."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self._done = 0

    def __iter__(self) -> Iterator[bytes]:
        # Whatever is available: the writer of a pipe may wait for our reports before it writes more.
        read: Callable[[int], bytes] = getattr(self._file, "read1", self._file.read)
        while piece := self._read_counted(read, PIECE_BYTES):
            yield piece

    def read(self, size: int, /) -> bytes:
        return self._read_counted(self._file.read, size)

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, position: int, /) -> None:
        self._file.seek(position)
        self._done = position

    def tell(self) -> int:
        return self._file.tell()

    def _read_counted(self, read: Callable[[int], bytes], size: int) -> bytes:
        self._progress.reach(self._done)  # the previous piece is processed
        with _interruptible():
            piece = read(size)
        self._done += len(piece)
        return piece


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a blocking read: the event loop would note it, but never get to run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _is_cancelled():
            raise KeyboardInterrupt
        with _interrupt_periodically():
            yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupt_periodically() -> Iterator[None]:
    """Interrupt a blocking read a few times a second. A signal that arrives just before the read blocks has
    set a flag that only the return of the read would make Python look at."""
    if not hasattr(signal, "setitimer"):  # on Windows
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, CHECK_EVERY, CHECK_EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _open_input(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        if sys.stdin is None:
            raise InvalidInput("Standard input is closed. Give a file.")
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as problem:
        raise InvalidInput(f"{name} cannot be read: {problem.strerror}. Check the path.") from None


def _is_cancelled() -> bool:
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
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; the file must not exist.")],
    store: Store = None,
    config: Config = None,
) -> None:
    """Copy a store into one file, as it is at one moment, while servers keep using it.

    The copy is complete and on disk when the command ends, or does not exist. Only its user may read it. To
    restore it, stop the server and put it in place of the store's file, without the old `-wal` and `-shm`.
    """
    from turnledger.cli.backend.own_store import store_url
    from turnledger.stores.url import back_up_store

    with ExitStack() as stack:
        bars: list[Progress] = []

        def report(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(Progress("Copying", total, in_bytes=True)))
            bars[0].reach(done)

        back_up_store(store_url(store, config), str(file), report)
    typer.echo(f"{file}: {file.stat().st_size} bytes. To check it: turnledger check sqlite:///{file}")
