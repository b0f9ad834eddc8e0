"""A command on several chats or links: each is processed, and those that fail are reported at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from turnledger.cli.commands.target import CommandTarget
from turnledger.cli.failures import FAILED, describe
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import json_of, print_message
from turnledger.errors import ConversationUnavailable, InvalidInput, ShareNotFound
from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.cli.backend.backend import Backend

Result = TypeVar("Result")


def run_each(
    label: str,
    target: CommandTarget,
    names: Sequence[str],
    change: Callable[[Backend, str], Awaitable[Result]],
    message: Callable[[Result], str],
) -> None:
    """Process each of these; print the results, as JSON or by their messages, and the errors of the
    others."""

    problems: list[str] = []

    async def work(backend: Backend) -> None:
        with Progress(label, len(names)) as progress:
            for name in names:
                try:
                    result = await change(backend, name)
                    progress.print_line(plain(json_of(result) if target.as_json else message(result)))
                except (ConversationUnavailable, InvalidInput, ShareNotFound) as problem:
                    problems.append(describe(problem, name))
                progress.advance(1)

    try:
        target.run(work)
    finally:  # also after another error
        for problem in problems:
            print_message(problem)
    if problems:
        raise typer.Exit(FAILED)
