"""The target of a command: the options that select it, declared once, and the output of the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import typer

from turnledger.cli.backend.backend import BackendSelector
from turnledger.cli.options import AsJson, Config, Owner, Scope, Server, Store
from turnledger.cli.output.streams import json_of, print_message
from turnledger.cli.output.table import Column, Record, print_records

if TYPE_CHECKING:
    from turnledger.cli.backend.backend import Backend

Entry = TypeVar("Entry")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class CommandTarget(BackendSelector):
    """The backend of a command, the scope in which it looks conversation_keys up, and how it prints."""

    def __init__(self, *, scope: str = "", as_json: bool = False, **selection: Any) -> None:
        super().__init__(**selection)
        self.scope = scope
        self.as_json = as_json

    def print(
        self,
        work: Callable[[Backend], Coroutine[Any, Any, Result]],
        show: Callable[[Result], None],
    ) -> None:
        """Run `work`, and print its result: as JSON, or by `show`."""
        result = self.run(work)
        if self.as_json:
            typer.echo(json_of(result))
        else:
            show(result)

    def print_listing(
        self,
        entries: Sequence[Entry],
        columns: Sequence[Column],
        record_of: Callable[[Entry], Record],
        empty_message: str,
    ) -> None:
        """Print a complete list: as JSON, or in columns."""
        if self.as_json:
            from turnledger.api.chats import Listing

            typer.echo(json_of(Listing(tuple(entries))))
            return
        print_records(columns, list(map(record_of, entries)))
        if not entries:
            print_message(empty_message)


def _shared(
    owner: Owner = None,
    scope: Scope = "",
    server: Server = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None: ...


_SHARED = inspect.signature(_shared, eval_str=True).parameters


def on_target(
    *without: str, **behaviour: Any
) -> Callable[[Callable[Concatenate[CommandTarget, Arguments], None]], Callable[..., None]]:
    """Give a command the options of its target after its own, except those named in `without`. For
    `behaviour` see BackendSelector."""
    shared = [each for name, each in _SHARED.items() if name not in without]

    def decorate(command: Callable[Concatenate[CommandTarget, Arguments], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**options: Any) -> None:
            selection = {each.name: options.pop(each.name, each.default) for each in shared}
            call: Callable[..., None] = command
            call(CommandTarget(**selection, **behaviour), **options)

        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
        run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        return run

    return decorate
