"""The Python and TypeScript clients have the same methods and the shapes of turnledger.api."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, get_type_hints

import msgspec
import pytest

from tests.clients.typescript_package import PACKAGE, built
from turnledger.api.access import ModelUsage, Share, Token, Visit
from turnledger.api.chats import ChatInfo, Hit, ListedChat, RestoredChat
from turnledger.api.events import Change
from turnledger.api.turns import Attempt, Branch, ChatContext, ShownChat, Sibling, Turn
from turnledger.client import Client
from turnledger.client.core import turn_request
from turnledger.client.shapes import FoundChat
from turnledger.client.sync.access import Shares, Tokens
from turnledger.client.sync.chat import Chat, TurnStream
from turnledger.client.sync.client import Chats
from turnledger.model.transfer import ImportOutcome, ImportReport
from turnledger.model.turn import Failure
from turnledger.server.openapi.schemas import COMPONENTS, Components

CLASSES = {
    "Client": Client,
    "Chats": Chats,
    "Chat": Chat,
    "TurnStream": TurnStream,
    "Tokens": Tokens,
    "Shares": Shares,
}
PYTHON_ONLY = {
    "Client": {"close", "outbox"},  # fetch has no connections to let go of
    "TurnStream": {"begin", "close", "fail"},  # leaving a `for await` closes it
}
TYPESCRIPT_ONLY = {
    # Its outbox is a class of its own, and stands on the first two; devices with browsers change networks.
    "Client": {"base_url", "resend", "reconnect"},
    "TurnStream": {"next", "chat_id", "begun"},
    "Shares": {"exchange"},  # visitors come by browsers
}


@cache
def declarations() -> str:
    return "\n".join(path.read_text() for path in sorted((built() / "dist" / "src").glob("*.d.ts")))


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def members_in_typescript(kind: str, name: str) -> set[str]:
    found = re.search(rf"export (?:declare )?{kind} {name}\b[^\n]*\{{\n(.*?)\n\}}", declarations(), re.DOTALL)
    assert found is not None, f"there is no {kind} {name}"
    member = re.compile(r"^    (?:(?:readonly|get|override) )*([a-zA-Z]+)[(:<?]", re.MULTILINE)
    return {snake(each) for each in member.findall(found[1])} - {"constructor"}


@pytest.mark.parametrize("name", CLASSES)
def test_python_and_typescript_classes_have_the_same_members(name: str) -> None:
    public = {each for each in dir(CLASSES[name]) if not each.startswith("_")}
    public |= {"chats", "tokens", "shares"} if name == "Client" else set()
    assert public - PYTHON_ONLY.get(name, set()) == members_in_typescript(
        "class", name
    ) - TYPESCRIPT_ONLY.get(name, set())


def test_python_and_typescript_turn_options_are_the_same() -> None:
    options = set(get_type_hints(turn_request.TurnOptions))
    # Python's calls wait for the head of their answers: they have an order by themselves.
    assert members_in_typescript("interface", "TurnOptions") == options | {"before_retry"}


SAME = {
    "Attempt": Attempt,
    "Branch": Branch,
    "ChatContext": ChatContext,
    "ChatInfo": ChatInfo,
    "Failure": Failure,
    "Hit": Hit,
    "ModelUsage": ModelUsage,
    "Share": Share,
    "Sibling": Sibling,
    "Token": Token,
    "Turn": Turn,
    "Visit": Visit,
}
WIDER = (ListedChat, RestoredChat, FoundChat)
"""In TypeScript one type has the fields of all of them."""
COMPONENT = Components([*SAME.values(), *WIDER, ShownChat]).schemas
PLAIN = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
MEMBER = re.compile(r"^ *(?:\| \{ )?readonly (\w+)(\??): (.+?);?$", re.MULTILINE)


@cache
def source() -> str:
    return (PACKAGE / "src" / "shapes.ts").read_text("utf-8")


def members(name: str) -> dict[str, tuple[bool, frozenset[str]]]:
    """The fields of an interface: whether each is optional, and what it may be."""
    found = re.search(rf"^export interface {name} \{{\n(.*?)\n\}}", source(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"there is no interface {name}"
    return {snake(field): (bool(mark), union(kind)) for field, mark, kind in MEMBER.findall(found[1])}


def union(kind: str) -> frozenset[str]:
    """What a type may be, with words in place of their names."""
    if array := re.fullmatch(r"readonly (\w+)\[\]", kind):
        return frozenset({f"readonly {sorted(union(array[1]))}[]"})
    named = re.search(rf"^export type {re.escape(kind)} = (\"[^;]+);", source(), re.MULTILINE)
    return frozenset((named[1] if named else kind).split(" | "))


def in_typescript(schema: dict[str, Any]) -> frozenset[str]:
    """The type of what a schema describes."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(COMPONENTS)
        return frozenset({name}) if name in SAME else in_typescript(COMPONENT[name])
    if "anyOf" in schema:
        return frozenset().union(*map(in_typescript, schema["anyOf"]))
    if "enum" in schema:
        return frozenset(f'"{word}"' for word in schema["enum"])
    if "prefixItems" in schema:
        return frozenset({"Mark"})
    if schema["type"] == "array":
        items = schema["items"]
        kinds = frozenset({"Item"}) if items == {"type": "object"} else in_typescript(items)
        return frozenset({f"readonly {sorted(kinds)}[]"})
    if schema["type"] == "object":
        values = schema.get("additionalProperties")
        return frozenset({f"Readonly<Record<string, {values['type'] if values else 'unknown'}>>"})
    return frozenset({PLAIN[schema["type"]]})


def fields_of(shape: type[msgspec.Struct]) -> dict[str, frozenset[str]]:
    properties = COMPONENT[shape.__name__]["properties"]
    return {name: in_typescript(schema) for name, schema in properties.items()}


@pytest.mark.parametrize("name", SAME)
def test_typescript_interface_has_the_fields_of_the_api_shape(name: str) -> None:
    required = {field: kinds for field, (is_optional, kinds) in members(name).items() if not is_optional}
    assert required == fields_of(SAME[name])


def test_typescript_chat_info_marks_partial_fields_as_optional() -> None:
    known = fields_of(ChatInfo)
    fields = {field: kinds for shape in WIDER for field, kinds in fields_of(shape).items()}
    optional = {field: kinds for field, (is_optional, kinds) in members("ChatInfo").items() if is_optional}
    assert optional == {field: kinds for field, kinds in fields.items() if field not in known}


def test_typescript_chat_page_has_turns_before_and_attempts() -> None:
    own = {field: kinds for field, (_, kinds) in members("ChatPage").items() if field != "chat"}
    fields = fields_of(ShownChat)
    assert own == {field: fields[field] for field in ("turns", "before", "attempts")}


def test_typescript_change_has_the_fields_of_the_api_shape() -> None:
    facts = source()[source().index("interface ChangeFacts") : source().index("export interface Model")]
    names = {snake(name) for name in re.findall(r"readonly (\w+)\??:", facts)}
    assert names == set(Change.__struct_fields__)


def test_typescript_import_report_has_the_fields_and_outcomes_of_python() -> None:
    found = members("ImportReport")
    assert set(found) == set(ImportReport.__struct_fields__)
    assert found["did"][1] == {f'"{did}"' for did in ImportOutcome}
