"""Schemathesis: valid and invalid requests get a documented status and body."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from tests.fuzz.api_description import ApiDescription, Case
from tests.fuzz.application import Application

CHAT = "POST /v1/chat/completions"
RESPONSES = "POST /v1/responses"
TAKE_ANYTHING = {
    "POST /v1/responses/compact",
    "POST /v1/responses/{response}/cancel",
    "DELETE /v1/responses/{response}",
    "GET /api/events",
    "GET /v1/models",
    "GET /v1/models/{model}",
    "POST /api/import",
    "GET /",
    "GET /share",
    "GET /picture",
    "GET /assets/{name}",
    "GET /favicon.svg",
    "GET /service-worker.js",
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
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "2")),
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TEXTS = ("Hi", "/fail", "/fail after 1", "/stall", "/cut", "/refuse", "/length", '/call f {"a": 1}')


@functools.cache
def description() -> ApiDescription:
    with closing(Application()) as application:
        return ApiDescription(application.app.endpoints)


class Server:
    """A server, called with a token that has all rights, or without a token."""

    def __init__(self, *, has_tokens: bool, shows_one: bool) -> None:
        self.application = Application()
        self._has_tokens, self._shows_one = has_tokens, shows_one
        self._thrown_away = 0
        self._token = self.application.new_token()[1] if has_tokens else None

    def fetch(self, case: Case) -> None:
        headers = {}
        if self._shows_one:
            # The revoked token may be the one that authorizes the request.
            text = self._throwaway()[1] if case.method == "DELETE" else self._token
            headers["Authorization"] = f"Bearer {text}"
        response = description().fetch(self.application, case, headers)
        label, status = case.operation.label, response.status_code
        assert status < 500 or (label in (CHAT, RESPONSES) and status in (502, 504)), (
            f"{label}: {status} {response.text}"
        )
        if self._has_tokens and not self._shows_one and "security" in case.operation.definition.raw:
            is_known = b'"unknown_url"' not in response.content  # a path may be spoilt until it leads nowhere
            assert status in (400, 401, 403, 405, 415, 429) or not is_known, f"{label}: {status}"

    def _throwaway(self) -> tuple[str, str]:
        """A token to be revoked, of an owner of its own: nobody may have too many."""
        self._thrown_away += 1
        return self.application.new_token(owner=f"owner {self._thrown_away}")

    def aim(self, case: Case) -> Case:
        """Replace its ids by ids that exist."""
        known = {"chat": self.application.chat, "turn": self.application.turn, "model": "demo"}
        if self._has_tokens:
            known["token"] = self._throwaway()[0]
        case.path_parameters = {
            name: known.get(name, given) for name, given in (case.path_parameters or {}).items()
        }
        return case


TOKEN = "with a token"
SERVERS = {
    "without a token, where there is none": {"has_tokens": False, "shows_one": False},
    TOKEN: {"has_tokens": True, "shows_one": True},
    "without a token, where one is asked for": {"has_tokens": True, "shows_one": False},
}
# Without a token the same code runs behind the guard, or none does.
ON_SERVERS = pytest.mark.parametrize("server", [TOKEN] if IS_SHORT else SERVERS, indirect=True)
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(**SERVERS[getattr(request, "param", TOKEN)])
    yield server
    server.application.close()


@pytest.mark.parametrize("mode", MODES)
@ON_SERVERS
def test_boundary_requests_get_documented_answers(server: Server, mode: GenerationMode) -> None:
    for operation in description().operations.values():
        cases = description().coverage(operation, mode)
        assert cases, operation.label
        for case in cases[::3] if IS_SHORT else cases:
            server.fetch(case)


@pytest.mark.parametrize("mode", MODES)
@ON_SERVERS
def test_generated_requests_get_documented_answers(server: Server, mode: GenerationMode) -> None:
    for label, operation in description().operations.items():
        if mode is GenerationMode.NEGATIVE and label in TAKE_ANYTHING:
            continue

        @fuzzed
        @given(case=operation.as_strategy(mode), is_aimed=st.booleans())
        def send_case(case: Case, is_aimed: bool) -> None:
            server.fetch(server.aim(case) if is_aimed and mode is GenerationMode.POSITIVE else case)

        send_case()


@fuzzed
@given(draw=st.data(), text=st.sampled_from(TEXTS), stream=st.booleans())
def test_chat_completions_with_any_policy_headers_get_documented_answers(
    server: Server, draw: st.DataObject, text: str, stream: bool
) -> None:
    body: dict[str, Any] = {
        "model": "demo",
        "messages": [{"role": "user", "content": text}],
        "stream": stream,
    }
    server.fetch(draw.draw(description().operations[CHAT].as_strategy(body=body)))
