"""The public names and members are exactly those listed, and documented."""

import inspect
import subprocess
import sys
from enum import Enum
from typing import Any

import pytest

import turnledger
from turnledger import Chat, Item, Ledger, RunningTurn, asgi, hosting, messages, types
from turnledger.hosting import Host, Shares, Tokens
from turnledger.types import Chats, TurnBlock

EXPORTED = [
    *((turnledger, name) for name in turnledger.__all__),
    *((module, name) for module in (types, messages, hosting, asgi) for name in module.__all__),
]


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_turnledger_exports_exactly_these_names() -> None:
    assert turnledger.__all__ == [
        "ArgumentsDelta",
        "Chat",
        "Context",
        "Item",
        "ItemAdded",
        "ItemDone",
        "Ledger",
        "Limits",
        "OnBusy",
        "OnFailure",
        "OnStop",
        "ReasoningDelta",
        "RefusalDelta",
        "RunningTurn",
        "TextDelta",
        "Turn",
        "TurnFinished",
        "TurnResumed",
        "TurnStarted",
        "errors",
    ]


def test_exported_names_are_unique_across_modules() -> None:
    names = [name for _, name in EXPORTED]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(("module", "name"), EXPORTED, ids=[name for _, name in EXPORTED])
def test_exported_name_exists_and_is_documented(module: Any, name: str) -> None:
    exported: Any = getattr(module, name)
    inherited = {each.__doc__ for each in (Enum, *getattr(exported, "__bases__", ()))}
    assert exported.__doc__
    assert not isinstance(exported, type) or exported.__doc__ not in inherited
    assert not exported.__doc__.startswith(f"{name}(")  # what dataclasses make up


MEMBERS: dict[type, set[str]] = {
    Host: {
        "at_work",
        "clock",
        "create_with_items",
        "cursor_after",
        "delete_response",
        "delivered",
        "enqueue",
        "follow",
        "is_named",
        "lost",
        "name_by_model",
        "probe",
        "recover",
        "taken_over",
        "least_recent",
        "show_unwritten",
        "temporary_ledger",
        "unwritten",
        "unread",
        "usage",
        "work",
    },
    Shares: {"create", "exchange", "list", "revoke"},
    Tokens: {"create", "find", "find_all", "list", "record_uses", "revoke", "store_secret"},
}
"""Of classes that the reference pages, which are compared with the code, leave out."""


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_class_has_exactly_these_public_members(kind: type) -> None:
    assert public(kind) == MEMBERS[kind]


async def test_reprs_show_owner_id_title_and_state() -> None:
    async with await Ledger.open() as ledger:
        ann = ledger.for_owner("ann", scope="shop")
        chat = await ann.conversation(title="Where is my order?")
        async with chat.turn("Hi") as turn:
            shown = repr(turn)
            turn.emit("Hello")
        host, block, reader = Host(ledger), chat.turn("Bye"), Host(ledger).follow(ann)
    assert (repr(ledger), repr(ann)) == ("<Ledger of 'local'>", "<Chats of 'ann' in 'shop'>")
    assert repr(chat) == f'<Chat {chat.id} "Where is my order?">'
    assert repr(block) == f"<TurnBlock {block.id}>"
    assert [repr(each) for each in (host, host.tokens, host.shares)] == [
        "<Host of MemoryStore>",
        "<Tokens of MemoryStore>",
        "<Shares of MemoryStore>",
    ]
    assert repr(reader) == "<ChangeReader of 'ann'>"
    assert shown == f"<RunningTurn {turn.id}, number 1, running>"
    assert repr(turn.turn) == f"<Turn {turn.id}, number 1, completed>"
    assert repr(Item.of("Hi")).startswith('Item({"type":"message"')


@pytest.mark.parametrize("kind", [Chats, Ledger, Chat, Host, RunningTurn, Tokens, TurnBlock])
def test_public_methods_are_documented(kind: type) -> None:
    methods = [name for name in public(kind) if callable(getattr(kind, name))]
    assert [name for name in methods if not inspect.getdoc(getattr(kind, name))] == []


def test_unknown_name_of_turnledger_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Leger'"):
        _ = turnledger.Leger
    assert set(turnledger.__all__) <= set(dir(turnledger))


def test_import_of_turnledger_does_not_load_the_engine() -> None:
    code = "import sys, turnledger, turnledger.errors, turnledger.model.event; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"apsw", "asyncio", "turnledger.engine", "turnledger.ledger"} & set(loaded.split())
