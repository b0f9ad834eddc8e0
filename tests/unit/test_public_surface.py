"""The front door is small, known by heart, and documented."""

import inspect
import subprocess
import sys
from enum import Enum
from typing import Any

import pytest

import turnledger
from turnledger import Catalogue, Chat, Ledger, RunningTurn, Shares, Tokens, Transfer, TurnBlock


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_these_names_are_exported() -> None:
    assert turnledger.__all__ == [
        "Admission",
        "AttemptState",
        "Began",
        "Catalogue",
        "Change",
        "ChangeKind",
        "Chat",
        "Context",
        "Conversation",
        "Ended",
        "Finding",
        "Flags",
        "Hit",
        "ImportReport",
        "Item",
        "ItemDone",
        "Ledger",
        "Limits",
        "Listed",
        "LiveChange",
        "NamedBy",
        "OnBusy",
        "OnDivergence",
        "OnFailure",
        "OnStop",
        "Page",
        "Pending",
        "Repaired",
        "ResetPolicy",
        "Retained",
        "Retired",
        "Retry",
        "Rule",
        "Runner",
        "RunningTurn",
        "SearchPage",
        "Sent",
        "SetAside",
        "Share",
        "ShareKind",
        "Shares",
        "Sibling",
        "Standing",
        "TextDelta",
        "Token",
        "TokenScope",
        "Tokens",
        "Transfer",
        "Turn",
        "TurnBlock",
        "TurnFinished",
        "TurnKind",
        "TurnStarted",
        "Usage",
        "Visit",
        "Within",
        "errors",
        "items_of_messages",
        "messages_of",
        "repair",
    ]


@pytest.mark.parametrize("name", turnledger.__all__)
def test_every_exported_name_is_there_and_documented(name: str) -> None:
    exported: Any = getattr(turnledger, name)
    inherited = {each.__doc__ for each in (Enum, *getattr(exported, "__bases__", ()))}
    assert exported.__doc__
    assert exported.__doc__ not in inherited
    assert not exported.__doc__.startswith(f"{name}(")  # what dataclasses make up


def test_a_ledger_can_do_this() -> None:
    assert public(Ledger) == {
        "at_work",
        "backup",
        "changes",
        "chat_of",
        "check",
        "clock",
        "close",
        "catalogue",
        "conversation",
        "delete",
        "delivered",
        "follow",
        "is_named",
        "lost",
        "open",
        "over",
        "position",
        "probe",
        "recover",
        "resent",
        "reset",
        "restore",
        "retain",
        "run",
        "search",
        "shares",
        "tokens",
        "transfer",
        "turn",
        "usage",
    }


def test_shares_can_do_this() -> None:
    assert public(Shares) == {"create", "exchange", "list", "revoke"}


def test_tokens_can_do_this() -> None:
    assert public(Tokens) == {"create", "find", "find_all", "list", "note_uses", "revoke", "store_secret"}


def test_a_catalogue_can_do_this() -> None:
    assert public(Catalogue) == {"list", "name_by_model", "named"}


def test_a_transfer_can_do_this() -> None:
    assert public(Transfer) == {"export", "export_all", "import_lines", "markdown"}


def test_a_chat_can_do_this() -> None:
    assert public(Chat) == {
        "as_opened",
        "attempts",
        "branches",
        "conversation_key",
        "delete",
        "edit",
        "flag",
        "flags",
        "events",
        "fork",
        "former_conversation_key",
        "hidden",
        "history",
        "id",
        "info",
        "instructions",
        "outcome",
        "owner",
        "regenerate",
        "resent",
        "run",
        "scope",
        "siblings",
        "standing",
        "stop",
        "summary",
        "switch",
        "turn",
        "turns",
        "undo",
        "update",
    }


def test_a_running_turn_can_do_this() -> None:
    for_the_block = {
        "add",
        "began",
        "call",
        "emit",
        "history",
        "input",
        "instructions",
        "items",
        "messages",
        "messages_json",
        "most_bytes",
        "number",
        "open_calls",
        "put",
        "read_messages_json",
        "start",
        "steps",
        "stop",
        "task",
        "text",
    }
    for_the_engine = {
        "begin_to_leave",
        "finish",
        "has_created",
        "interrupt",
        "is_held",
        "is_inside",
        "is_kept_on_failure",
        "lose_lane",
        "take_back_cancellation",
        "to_commit",
        "to_end",
        "to_flush",
        "was_flushed",
    }
    assert public(RunningTurn) == for_the_block | for_the_engine


def test_a_turn_that_is_asked_for_can_do_this() -> None:
    assert public(TurnBlock) == {"id", "note_delivery", "run", "waits_in"}


@pytest.mark.parametrize("kind", [Ledger, Chat, RunningTurn, Tokens, Transfer, TurnBlock])
def test_every_public_method_is_documented(kind: type) -> None:
    methods = [name for name in public(kind) if callable(getattr(kind, name))]
    assert [name for name in methods if not inspect.getdoc(getattr(kind, name))] == []


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Leger'"):
        _ = turnledger.Leger
    assert set(turnledger.__all__) <= set(dir(turnledger))


def test_the_engine_is_loaded_for_those_who_use_it() -> None:
    code = "import sys, turnledger, turnledger.errors, turnledger.model.event; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"apsw", "asyncio", "turnledger.engine", "turnledger.ledger"} & set(loaded.split())
