"""Schemathesis over the description of the API: whatever it allows, and whatever it does not, is answered
with a status that it lists, in the shape that it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from tests.fuzz.asking import Application
from tests.fuzz.described import Case, Described

CHAT = "POST /v1/chat/completions"
OPERATIONS = [
    CHAT,
    "GET /v1/models",
    "GET /v1/models/{model}",
    "POST /api/turns",
    "GET /api/turns/{turn}",
    "POST /api/turns/{turn}/stop",
    "POST /api/chats/{chat}/stop",
    "GET /api/turns/{turn}/events",
    "GET /api/chats/{chat}/branches",
    "GET /api/chats/{chat}/turns/{turn}/siblings",
    "POST /api/chats/{chat}/switch",
    "POST /api/chats/{chat}/undo",
    "POST /api/chats/{chat}/fork",
    "POST /api/chats/reset",
    "GET /api/chats",
    "POST /api/chats",
    "PATCH /api/chats/{chat}",
    "GET /api/chats/{chat}",
    "DELETE /api/chats/{chat}",
    "POST /api/chats/{chat}/restore",
    "GET /api/events",
    "GET /api/search",
    "GET /api/chats/{chat}/export",
    "GET /api/export",
    "POST /api/import",
    "POST /api/tokens",
    "GET /api/tokens",
    "GET /api/tokens/self",
    "DELETE /api/tokens/{token}",
    "POST /api/shares",
    "GET /api/shares",
    "DELETE /api/shares/{share}",
    "POST /api/shares/exchange",
    "GET /",
    "GET /share",
    "GET /picture",
    "GET /assets/{name}",
    "GET /favicon.svg",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /openapi.json",
]
TAKE_ANYTHING = {
    "GET /api/events",
    "GET /v1/models",
    "GET /v1/models/{model}",
    "POST /api/import",
    "GET /",
    "GET /share",
    "GET /picture",
    "GET /assets/{name}",
    "GET /favicon.svg",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /openapi.json",
}
"""There is nothing about these that the description forbids."""
IS_SHORT = "FUZZ_EXAMPLES" not in os.environ
"""Whether this is the short form; `python -m tests.proof described_api` runs the other."""
fuzzed = settings(
    derandomize=IS_SHORT,
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "6")),
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
SAID = ("Hi", "/fail", "/fail after 1", "/stall", "/cut", "/refuse", "/length", '/call f {"a": 1}')


class Server:
    """A server, and how one comes to it: with a token that may do everything, or without any."""

    def __init__(self, *, has_tokens: bool, shows_one: bool) -> None:
        self.application = Application()
        self.described = Described(self.application.app.endpoints)
        self._has_tokens, self._shows_one = has_tokens, shows_one
        self._thrown_away = 0
        self._token = self.application.new_token()[1] if has_tokens else None

    def ask(self, case: Case) -> None:
        headers = {}
        if self._shows_one:
            # What is asked to be revoked may be the one that it is asked with.
            text = self._throwaway()[1] if case.method == "DELETE" else self._token
            headers["Authorization"] = f"Bearer {text}"
        response = self.described.ask(self.application, case, headers)
        label, status = case.operation.label, response.status_code
        assert status < 500 or (label == CHAT and status in (502, 504)), f"{label}: {status} {response.text}"
        if self._has_tokens and not self._shows_one and "security" in case.operation.definition.raw:
            is_known = b'"unknown_url"' not in response.content  # a path may be spoilt until it leads nowhere
            assert status in (400, 401, 403, 405, 415, 429) or not is_known, f"{label}: {status}"

    def _throwaway(self) -> tuple[str, str]:
        """A token to be revoked, of an owner of its own: nobody may have too many."""
        self._thrown_away += 1
        return self.application.new_token(owner=f"owner {self._thrown_away}")

    def aim(self, case: Case) -> Case:
        """Have it ask for something that there is."""
        known = {"chat": self.application.chat, "turn": self.application.turn, "model": "demo"}
        if self._has_tokens:
            known["token"] = self._throwaway()[0]
        case.path_parameters = {
            name: known.get(name, given) for name, given in (case.path_parameters or {}).items()
        }
        return case


SERVERS = {
    "without a token, where there is none": {"has_tokens": False, "shows_one": False},
    "with a token": {"has_tokens": True, "shows_one": True},
    "without a token, where one is asked for": {"has_tokens": True, "shows_one": False},
}


TOKEN = "with a token"
CASES = [
    (server, label, mode)
    for server in SERVERS
    for mode in GenerationMode
    for label in OPERATIONS
    # Without a token the same code runs behind the guard, or none does.
    if server == TOKEN or mode is GenerationMode.POSITIVE or not IS_SHORT
]


@pytest.fixture(scope="module", params=[TOKEN])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(**SERVERS[request.param])
    yield server
    server.application.close()


def test_nothing_of_the_description_is_left_out(server: Server) -> None:
    assert list(server.described.operations) == OPERATIONS


@pytest.mark.parametrize(("server", "label", "mode"), CASES, ids=str, indirect=["server"])
def test_at_the_edges(server: Server, label: str, mode: GenerationMode) -> None:
    cases = server.described.coverage(server.described.operations[label], mode)
    assert cases
    for case in cases:
        server.ask(case)


@pytest.mark.parametrize(
    ("server", "label", "mode"),
    [
        (server, label, mode)
        for server, label, mode in CASES
        if (server == TOKEN or not IS_SHORT)
        and (mode is GenerationMode.POSITIVE or label not in TAKE_ANYTHING)
    ],
    ids=str,
    indirect=["server"],
)
def test_anywhere(server: Server, label: str, mode: GenerationMode) -> None:
    @fuzzed
    @given(case=server.described.operations[label].as_strategy(mode), is_aimed=st.booleans())
    def ask(case: Case, is_aimed: bool) -> None:
        server.ask(server.aim(case) if is_aimed and mode is GenerationMode.POSITIVE else case)

    ask()


@fuzzed
@given(draw=st.data(), said=st.sampled_from(SAID), stream=st.booleans())
def test_a_turn_by_any_policies(server: Server, draw: st.DataObject, said: str, stream: bool) -> None:
    body: dict[str, Any] = {
        "model": "demo",
        "messages": [{"role": "user", "content": said}],
        "stream": stream,
    }
    server.ask(draw.draw(server.described.operations[CHAT].as_strategy(body=body)))
