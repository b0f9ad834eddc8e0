"""`turnledger chat`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnledger.cli import INTERRUPTED
from turnledger.cli.backend.backend import API_KEY
from turnledger.cli.backend.completion import complete_chat
from turnledger.cli.output.streams import print_message
from turnledger.errors import InvalidInput, NotAdmitted, TurnStopped

if TYPE_CHECKING:
    from turnledger.cli.chat.backend import AnyHandle, ChatBackend
    from turnledger.cli.chat.connect import Options

TERMINATED = 143
"""Exit code: ended by a signal."""
NO_CHAT_TO_CONTINUE = "There is no chat to continue: this is a new one."
DEMO_NOTE = "The demo model answers. Use --server URL, or name models in turnledger.toml."


def chat(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CHAT",
            help="Continue this chat: its id, as in conv_…, or its conversation_key.",
            autocompletion=complete_chat,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the most recently used chat.")] = False,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the first available model.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Use this server. Default: TURNLEDGER_SERVER. Its token comes from TURNLEDGER_API_KEY in the"
            " environment.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Use a store directly. Default: that of `turnledger serve`."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The turnledger.toml with the store and the models.")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Models for --store: the URL of a server with /chat/completions."),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the upstream's api_key.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="Only chats of this scope; new chats belong to it.")
    ] = None,
) -> None:
    """Chat with a model, on a server or directly on a store.

    Ctrl-C stops an answer and keeps what there is of it, Ctrl-D quits, /help explains the rest. Piped input
    is sent as one message, and the answer is printed as plain text.
    """
    from turnledger.cli.chat.connect import Options

    options = Options(
        server=server, store=store, config=config, upstream=upstream, api_key_env=api_key_env, scope=scope
    )
    text = None if sys.stdin.isatty() and sys.stdout.isatty() else _read_input()
    try:
        asyncio.run(_run_chat(options, name, model, text, resume=resume))
    except TurnStopped:
        raise typer.Exit(INTERRUPTED) from None
    except asyncio.CancelledError:
        raise typer.Exit(TERMINATED) from None


def _read_input() -> str:
    if sys.stdin.isatty():
        print_message("Type a message, then Ctrl-D.")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InvalidInput("Standard input is not UTF-8. Encode it as UTF-8.") from None


async def _run_chat(
    options: Options, name: str | None, model: str | None, text: str | None, *, resume: bool
) -> None:
    """Run the interactive chat; with a text, one turn."""
    from turnledger.cli.chat.connect import connect

    # The engine's log is for operators; here it would appear in the middle of an answer.
    logging.getLogger("turnledger").addHandler(logging.NullHandler())
    _cancel_on(signal.SIGTERM, signal.SIGHUP if hasattr(signal, "SIGHUP") else signal.SIGTERM)
    backend = await connect(options, os.environ)
    try:
        models = [model] if model is not None else await backend.models()
        handle = await _find_chat(backend, name, resume=resume)
        if text is None:
            await _interact(backend, models, handle, is_resumed=resume, is_model_chosen=model is not None)
        else:
            from turnledger.cli.chat.pipe import run_piped

            if resume and handle is None:
                print_message(NO_CHAT_TO_CONTINUE)
            if backend.is_demo and model is None:
                await _check_demo(handle, models[0])
            await run_piped(handle or backend.new(), models[0], text, sys.stdout)
    except NotAdmitted as problem:
        problem.args = (f"{problem} The token is read from {API_KEY}.",)
        raise
    finally:
        await backend.close()


def _cancel_on(*signals: signal.Signals) -> None:
    """Cancel this task on these signals, so that the terminal is restored."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker
    with suppress(NotImplementedError):  # on Windows
        for each in signals:
            loop.add_signal_handler(each, task.cancel)


async def _find_chat(backend: ChatBackend, name: str | None, *, resume: bool) -> AnyHandle | None:
    if name is not None:
        return await backend.open(name)
    last = await backend.chats(limit=1) if resume else []
    return await backend.open(last[0].id) if last else None


async def _check_demo(handle: AnyHandle | None, model: str) -> None:
    """Print that the demo model answers. Raises InvalidInput in a chat that another model answered."""
    from turnledger.cli.chat.backend import check_demo, last_model

    if handle is not None:
        check_demo(last_model((await handle.read(limit=5)).turns), model, f"--model {model}")
    print_message(DEMO_NOTE)


async def _interact(
    backend: ChatBackend,
    models: list[str],
    handle: AnyHandle | None,
    *,
    is_resumed: bool,
    is_model_chosen: bool,
) -> None:
    from rich.text import Text

    from turnledger.cli.chat.connect import history_folder
    from turnledger.cli.chat.interrupts import catch_interrupts, hold_keys
    from turnledger.cli.chat.prompt import history_in
    from turnledger.cli.chat.repl import ChatLoop
    from turnledger.cli.chat.screen import Screen, console_for, is_light
    from turnledger.cli.chat.session import Session
    from turnledger.cli.chat.turn_view import DIM

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # then a missing letter takes one column, too
    theme = "ansi_light" if is_light(os.environ.get("COLORFGBG")) else "ansi_dark"
    screen = Screen(console_for(sys.stdout), theme)
    screen.print(Text.assemble(("Turnledger", "bold"), (f"  {models[0]} at {backend.name}", DIM)))
    if backend.is_demo and not is_model_chosen:
        screen.print(Text(DEMO_NOTE, "yellow"))
    screen.print(Text("/help lists the commands, Ctrl-D quits.", DIM))
    with catch_interrupts() as interrupts, hold_keys():
        session = Session(backend, screen, models, interrupts, is_model_chosen=is_model_chosen)
        if handle is not None:
            await session.open(handle)
        elif is_resumed:
            screen.print(Text(NO_CHAT_TO_CONTINUE, DIM))
        await ChatLoop(session, interrupts, history_in(history_folder(os.environ))).run()
    if session.chat is not None and session.chat.turn_count:
        place = f" --server {backend.name}" if backend.name.startswith("http") else ""
        screen.print(Text(f"Continue with: turnledger chat {session.handle.id}{place}", DIM))
