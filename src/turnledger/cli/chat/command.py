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
from turnledger.cli.backend.completion import chats_beginning_with
from turnledger.cli.output.streams import say
from turnledger.errors import InvalidInput, NotAdmitted, TurnStopped

if TYPE_CHECKING:
    from turnledger.cli.chat.backend import ChatBackend, Talk
    from turnledger.cli.chat.connect import Options

TERMINATED = 143
"""Exit code: ended by a signal."""


def chat(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CHAT",
            help="Go on with this one: its id, as in conv_…, or conversation_key.",
            autocompletion=chats_beginning_with,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the chat that was used last.")] = False,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the first one there is.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Talk on this server. Default: TURNLEDGER_SERVER. Its token: TURNLEDGER_API_KEY, in the"
            " environment only.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Talk straight on a store. Default: that of `turnledger serve`."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The turnledger.toml that names store and models.")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Models for --store: a server with /chat/completions."),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the upstream's api_key.")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="Only chats of this scope, and new ones there.")] = None,
) -> None:
    """Chat with a model, on a server or directly on a store.

    Ctrl-C stops an answer and keeps what there is of it, Ctrl-D leaves, /help explains the rest. Piped input
    is sent as one message, and the answer is printed as plain text.
    """
    from turnledger.cli.chat.connect import Options

    options = Options(
        server=server, store=store, config=config, upstream=upstream, api_key_env=api_key_env, scope=scope
    )
    text = None if sys.stdin.isatty() and sys.stdout.isatty() else _piped()
    try:
        asyncio.run(_talk(options, name, model, text, resume=resume))
    except TurnStopped:
        raise typer.Exit(INTERRUPTED) from None
    except asyncio.CancelledError:
        raise typer.Exit(TERMINATED) from None


def _piped() -> str:
    if sys.stdin.isatty():
        say("Type what you have to say, and Ctrl-D behind it.")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InvalidInput("Standard input is not UTF-8.") from None


async def _talk(
    options: Options, name: str | None, model: str | None, text: str | None, *, resume: bool
) -> None:
    """Run the interactive chat; with a text, one turn."""
    from turnledger.cli.chat.connect import open_place

    # The engine's log is for operators; here it would appear in the middle of an answer.
    logging.getLogger("turnledger").addHandler(logging.NullHandler())
    _end_in_order(signal.SIGTERM, signal.SIGHUP if hasattr(signal, "SIGHUP") else signal.SIGTERM)
    place = await open_place(options, os.environ)
    try:
        models = [model] if model is not None else await place.models()
        talk = await _chosen(place, name, resume=resume)
        if text is None:
            await _interact(place, models, talk, wants_last=resume)
        else:
            from turnledger.cli.chat.pipe import run_piped

            await run_piped(talk or place.new(), models[0], text, sys.stdout)
    except NotAdmitted as problem:
        problem.args = (f"{problem} The token that is shown is the one in {API_KEY}.",)
        raise
    finally:
        await place.close()


def _end_in_order(*signals: signal.Signals) -> None:
    """Cancel this task on these signals, so that the terminal is restored."""
    loop, talking = asyncio.get_running_loop(), asyncio.current_task()
    assert talking is not None  # noqa: S101 - for the type checker
    with suppress(NotImplementedError):  # on Windows
        for each in signals:
            loop.add_signal_handler(each, talking.cancel)


async def _chosen(place: ChatBackend, name: str | None, *, resume: bool) -> Talk | None:
    if name is not None:
        return await place.open(name)
    last = await place.chats(limit=1) if resume else []
    return await place.open(last[0].id) if last else None


async def _interact(place: ChatBackend, models: list[str], talk: Talk | None, *, wants_last: bool) -> None:
    from rich.text import Text

    from turnledger.cli.chat.connect import history_folder
    from turnledger.cli.chat.interrupts import keys_kept, noted_presses
    from turnledger.cli.chat.prompt import history_in
    from turnledger.cli.chat.repl import ChatLoop
    from turnledger.cli.chat.screen import Screen, console_for, is_light
    from turnledger.cli.chat.session import Session
    from turnledger.cli.chat.turn_view import DIM

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # then a missing letter takes one column, too
    theme = "ansi_light" if is_light(os.environ.get("COLORFGBG")) else "ansi_dark"
    screen = Screen(console_for(sys.stdout), theme)
    screen.say(Text.assemble(("Turnledger", "bold"), (f"  {models[0]} at {place.name}", DIM)))
    screen.say(Text("/help tells what can be done, Ctrl-D leaves.", DIM))
    with noted_presses() as interrupts, keys_kept():
        session = Session(place, screen, models, interrupts)
        if talk is not None:
            await session.open(talk)
        elif wants_last:
            screen.say(Text("There is no chat to go on with: this is a new one.", DIM))
        await ChatLoop(session, interrupts, history_in(history_folder(os.environ))).run()
    if session.chat is not None and session.chat.turns:
        screen.say(Text(f"Go on with: turnledger chat {session.talk.id}", DIM))
