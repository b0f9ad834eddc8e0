"""A command on several chats or links: each is processed, and those that fail are reported at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import typer

from turnledger.cli.backend.backend import Backend, BackendSelector
from turnledger.cli.failures import FAILED, describe
from turnledger.cli.output.progress import Progress
from turnledger.cli.output.streams import print_message
from turnledger.errors import ConversationUnavailable, InvalidInput, ShareNotFound
from turnledger.model.text.plain import plain


def run_each(
    selector: BackendSelector,
    names: Sequence[str],
    change: Callable[[Backend, str], Awaitable[str]],
    label: str,
) -> None:
    """Process each of these; print the results, and the errors of the others."""

    problems: list[str] = []

    async def work(backend: Backend) -> None:
        with Progress(label, len(names)) as progress:
            for name in names:
                try:
                    progress.print_line(plain(await change(backend, name)))
                except (ConversationUnavailable, InvalidInput, ShareNotFound) as problem:
                    problems.append(describe(problem, name))
                progress.advance(1)

    try:
        selector.run(work)
    finally:  # also after another error
        for problem in problems:
            print_message(problem)
    if problems:
        raise typer.Exit(FAILED)
