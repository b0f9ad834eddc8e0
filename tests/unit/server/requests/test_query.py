"""What stands behind the question mark: digits and known words, and nothing else.

What an endpoint does not listen to is refused by name, and nothing is done.
"""

from __future__ import annotations

import pytest

from tests.unit.server.asgi import HOST, JSON, ask
from turnledger import Ledger
from turnledger.errors import InvalidInput
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.server.requests.query import HIGHEST, choice_of, number_of, yes_or_no


def test_what_is_left_out_is_as_it_is_otherwise() -> None:
    assert number_of(None, "limit", 50) == 50
    assert number_of(None, "before", None) is None


def test_nothing_else_counts_as_left_out() -> None:
    assert number_of("0", "limit", 50) == 0
    assert number_of(str(HIGHEST), "limit", 50) == HIGHEST


@pytest.mark.parametrize("given", ["", "-1", "1.0", "٣", " 1", "1000000000"])
def test_anything_else_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="limit is a number"):
        number_of(given, "limit", 50)


def test_yes_or_no_is_true_or_false() -> None:
    assert [yes_or_no(given, "purge", otherwise=False) for given in ("true", "false", None)] == [
        True,
        False,
        False,
    ]
    assert yes_or_no(None, "purge", otherwise=True)
    with pytest.raises(InvalidInput, match="purge is true or false"):
        yes_or_no("1", "purge", otherwise=False)


def test_a_word_stands_for_what_is_known_by_it() -> None:
    known = {"true": 1, "false": 0}
    assert [choice_of(given, "pinned", known, 7) for given in ("true", "false", None)] == [1, 0, 7]


@pytest.mark.parametrize("given", ["", "True", "1", "any"])
def test_another_word_is_refused_with_those_that_are_known(given: str) -> None:
    with pytest.raises(InvalidInput, match="pinned is one of true, false"):
        choice_of(given, "pinned", {"true": 1, "false": 0}, 7)


NO_BODY = (b"content-length", b"0")


@pytest.mark.parametrize(
    ("path", "query", "told"),
    [
        ("/api/chats", b"scopes=shop", "scope, tag, archived, pinned, deleted, cursor, limit"),
        ("/api/chats", b"tag=a&tag=b", "tag: given more than once"),
        ("/api/export", b"scop=shop", "Known: scope."),
        ("/api/search", b"query=heron", "Known: q"),
        ("/api/events", b"after=3", "This path takes none."),
        ("/api/chats", b"%F0%9F%98%80&=", "Known:"),
    ],
)
async def test_a_parameter_that_is_not_known_is_refused_with_those_that_are(
    path: str, query: bytes, told: str
) -> None:
    async with await Ledger.open("memory:") as ledger:
        refused = await ask(make_app(ledger, Models({}), Settings()), path, query=query)
    assert refused.status == 400
    assert refused.code in ("unknown_parameter", "repeated_parameter")
    assert told in refused.json["error"]["message"]


async def test_paths_that_others_speak_too_take_any() -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        for path in ("/v1/models", "/healthz", "/share"):
            assert (await ask(app, path, query=b"api-version=2026-01-01")).status == 200


@pytest.mark.parametrize(
    ("header", "value", "remedy"),
    [
        (b"x-conversation-keep", b"no", "/v1/chat/completions"),
        (b"if-match", b'"1"', "PATCH"),
    ],
)
async def test_a_header_that_asks_for_what_is_not_done_makes_no_chat(
    header: bytes, value: bytes, remedy: str
) -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        headers = [HOST, JSON, NO_BODY, (header, value)]
        refused = await ask(app, "/api/chats", method="POST", headers=headers)
        assert (refused.status, (await ledger.catalogue.list()).chats) == (400, ())
        assert remedy in refused.json["error"]["message"]


async def test_a_condition_under_which_to_delete_is_not_passed_over() -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        chat = await ledger.conversation(title="Orders")
        path = f"/api/chats/{chat.id}"
        refused = await ask(app, path, method="DELETE", headers=[HOST, (b"if-match", b'"7"')])
        assert (refused.status, refused.code) == (400, "invalid_if_match")
        assert (await chat.info()).title == "Orders"
        # It is there: that is all that this one asks for.
        assert (await ask(app, path, method="DELETE", headers=[HOST, (b"if-match", b"*")])).status == 200
