"""The two clients have the same verbs, by the same names as each language writes them."""

from __future__ import annotations

import re
from functools import cache
from typing import get_type_hints

import pytest

from tests.clients.typescript_package import built
from turnledger.client import Client
from turnledger.client.core import turn_request
from turnledger.client.sync.access import Shares, Tokens
from turnledger.client.sync.chat import Chat, TurnStream
from turnledger.client.sync.client import Chats

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
    "TurnStream": {"begin", "close", "fail"},  # who leaves a `for await` has closed it
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
def test_each_has_the_verbs_of_the_other(name: str) -> None:
    public = {each for each in dir(CLASSES[name]) if not each.startswith("_")}
    public |= {"chats", "tokens", "shares"} if name == "Client" else set()
    assert public - PYTHON_ONLY.get(name, set()) == members_in_typescript(
        "class", name
    ) - TYPESCRIPT_ONLY.get(name, set())


def test_the_same_can_be_said_of_a_turn() -> None:
    said = set(get_type_hints(turn_request.AskOptions))
    # Python's calls wait for the head of their answers: they have an order by themselves.
    assert members_in_typescript("interface", "TurnOptions") == said | {"before_retry"}
