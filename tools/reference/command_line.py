"""The reference of the command line: commands, options and defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from tools.reference.markdown import code, head, prose, sections, table
from turnledger.cli.main import app

INTRODUCTION = (
    "Every command, argument and option, as `turnledger COMMAND --help` prints them. How to use them: "
    "[the command line](../command-line.md), [the server](../server.md), [tokens](../access.md#tokens)."
)

KINDS = {
    "str": "TEXT",
    "int": "N",
    "int range": "N",
    "float": "NUMBER",
    "float range": "NUMBER",
    "path": "PATH",
}
"""Typer's names for values of options, and ours."""


def page() -> str:
    root: Any = typer.main.get_command(app)
    return sections([head("Reference: the command line", INTRODUCTION), *_sections(root, None, "turnledger")])


def _sections(command: Any, parent: Any, path: str) -> Iterator[str]:
    context = type(command).context_class(command, parent=parent, info_name=path.rpartition(" ")[2])
    if command.hidden:
        return
    yield _section(command, context, path)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _sections(command.get_command(context, name), context, f"{path} {name}")


def _section(command: Any, context: Any, path: str) -> str:
    arguments, options = [], []
    for each in command.params:
        if getattr(each, "hidden", False):
            continue
        if each.param_type_name == "argument":
            name = " ".join(each.get_usage_pieces(context)).strip("{}[].")
            arguments.append((f"`{name}`", each.help or ""))
        else:
            name, text = each.get_help_record(context)
            options.append((f"`{_spelled(name)}`", text))
    usage = command.get_usage(context).removeprefix("Usage: ").replace("{", "").replace("}...", "")
    return sections(
        [
            f"{'#' * min(len(path.split()) + 1, 3)} {path}",
            code(" ".join(usage.replace("}", "").split()), "text"),
            prose(inspect.cleandoc(command.help or "")),
            table(["argument", ""], arguments),
            table(["option", ""], options),
        ]
    )


def _spelled(option: str) -> str:
    return re.sub(r"<([a-z ]+)>", lambda kind: KINDS.get(kind[1], kind[1].upper()), option)
