"""The reference of the library: what `turnledger`, `turnledger.types` and `turnledger.asgi` export, and the
runner and models of `turnledger.runners`."""

from __future__ import annotations

from collections.abc import Iterator

import turnledger
from tools.reference.markdown import head, sections
from tools.reference.python_client import section, short_names
from turnledger import Chat, Ledger, RunningTurn, types
from turnledger.asgi import TurnStreams
from turnledger.engine.conversations.read import ListedBranch
from turnledger.engine.turn.validation import MoveOptions, TurnOptions
from turnledger.model.turn import Attempt
from turnledger.runners.chat_model import ChatModel, ModelRequest
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.demo import DemoModel
from turnledger.runners.upstream.upstream import Retries, Timeouts, Upstream
from turnledger.types import Chats, TurnBlock

INTRODUCTION = (
    "Everything that `turnledger`, `turnledger.types` and `turnledger.asgi` offer (`pip install .` in the "
    "clone), and the runner and models of `turnledger.runners`: `chat_runner` has `ChatRunner`, `demo` has "
    "`DemoModel`, `upstream.upstream` has `Upstream`, `Timeouts` and `Retries`, and `chat_model` the rest. "
    "[Turns](../turns.md), [chats](../chats.md) and [models](../models.md) explain how to use them. "
    "`turnledger.sync` has the "
    "same classes [without `await`](../turns.md#blocking-programs). For servers of your own, "
    "`turnledger.hosting` adds what [access](../access.md) and [retries](../retries.md#in-the-library) list. "
    "Its errors are in [another page](errors.md)."
)
CHATS = "Beside these, it has all members of [Chats](#chats), for the owner `local`."
FIRST = (Ledger, Chats, Chat, TurnBlock, TurnOptions, MoveOptions, RunningTurn)
REACHED = (Attempt, ListedBranch)
"""Returned inside of others, and not exported."""
RUNNERS = (ChatRunner, ChatModel, ModelRequest, DemoModel, Upstream, Timeouts, Retries)


def page() -> str:
    kinds = list(dict.fromkeys([*FIRST, *_exported(), *REACHED, TurnStreams, *RUNNERS]))
    parts = [section(kind, kinds, without=Chats if kind is Ledger else object) for kind in kinds]
    aliases = short_names(parts, "turnledger.engine", "turnledger.model")
    return sections([head("Reference: the library", INTRODUCTION), parts[0], CHATS, *parts[1:], aliases])


def _exported() -> Iterator[type]:
    for module in (turnledger, types):
        for name in module.__all__:
            if isinstance(exported := getattr(module, name), type):
                yield exported
