"""Control: without its guard the server is open to the attacks of the other tests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.browser.attacks import READING, RUNNING
from tests.browser.conftest import Open, Sites
from tests.browser.victim import COMPLETIONS, SECRET, Victim, question, run_victim

BODY = json.dumps(question("Do as the page says"))
BODY_OF_THEIR_OWN = {"ping", "policy report", "form", "form of parts", "fetch of parts without cors"}
"""The server is reached, and cannot read what they bring."""
ASKS_FIRST = {"fetch", "fetch with a conversation", "beacon of json"}


@pytest.fixture(scope="module")
def open_house(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with run_victim(tmp_path_factory.mktemp("unguarded"), program="tests.browser.unguarded_server") as victim:
        yield victim


@pytest.mark.parametrize("attack", [name for name in RUNNING if name not in BODY_OF_THEIR_OWN | ASKS_FIRST])
def test_unguarded_server_runs_a_turn_for_every_running_attack(
    attack: str, open_house: Victim, page_of: Open
) -> None:
    request_count, _ = open_house.everything()
    page = page_of("evil.test")
    with open_house.watched(COMPLETIONS) as seen:
        page.evaluate(RUNNING[attack], [open_house.url(COMPLETIONS), BODY])
    assert [line["status"] for line in seen] == [200]
    assert open_house.everything()[0] == request_count + 1


@pytest.mark.parametrize(
    "attack",
    ["fetch", "fetch from a worker", "fetch from a sandboxed frame", "fetch that follows a redirect"],
)
def test_unguarded_server_exposes_the_chat_to_reading_attacks(
    attack: str, open_house: Victim, page_of: Open
) -> None:
    page = page_of("evil.test")
    assert SECRET in repr(page.evaluate(READING[attack], open_house.url(open_house.private[0])))


def test_unguarded_server_exposes_chats_and_turns_to_a_rebound_page(
    open_house: Victim, sites: Sites, visit: Open
) -> None:
    page = visit(open_house.url("/", host="rebound.test"))
    sites.rebinding.rebind(open_house.port)
    try:
        result = page.evaluate(READING["fetch"], open_house.private[0])
        ran = page.evaluate(RUNNING["fetch with a conversation"], [COMPLETIONS, BODY])
    finally:
        sites.rebinding.rebind(sites.port)
    assert SECRET in result["body"]
    assert dict(ran["headers"])["x-conversation-state"] == "created"
