"""Who listens hears every change once, for as long as he listens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.scripted import CHAT, CUT, UNREACHED, Script, error_event, reading, refused
from turnledger import errors
from turnledger.client.core.exchange import Pacing, Retries
from turnledger.client.core.feed import FeedFollower

GONE = refused(410, "gone_for_good")


def change(position: str, kind: str) -> bytes:
    data = b'{"type":"%s","at":5,"chat":"%s"}' % (kind.encode(), CHAT.encode())
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (position.encode(), kind.encode(), data)


def heard(script: Script, after: str | None = None) -> list[tuple[str, str]]:
    """What is heard until the server says that it is over, which it says for the sake of the test."""
    with pytest.raises(errors.RequestFailed):
        script.play(FeedFollower(script.trying(), script.retries, after).steps())
    return [(each.type, each.position) for each in script.given]


def positions(script: Script) -> list[str | None]:
    return [each.headers.get("last-event-id") for each in script.asked]


def test_it_goes_on_behind_the_last_change_that_was_heard() -> None:
    script = Script(
        reading(change("a", "start"), change("b", "chat.created")[:20], end=CUT),
        CUT,
        reading(change("b", "chat.created"), end=CUT),
        GONE,
    )
    assert heard(script) == [("start", "a"), ("chat.created", "b")]
    assert positions(script) == [None, "a", "a", "b"]


def test_a_comment_that_tells_a_position_is_where_it_goes_on() -> None:
    script = Script(reading(change("a", "start"), b": \nid: c\n\n", end=CUT), GONE)
    assert heard(script) == [("start", "a")]
    assert positions(script) == [None, "c"]


def test_one_may_begin_behind_a_position() -> None:
    script = Script(GONE)
    heard(script, "p")
    assert positions(script) == ["p"]


def test_a_server_that_ends_is_waited_for_for_ever_once_it_was_heard() -> None:
    script = Script(
        reading(change("a", "start"), error_event("shutting_down")),
        *[UNREACHED] * 30,
        GONE,
        retries=Retries(times=3),
    )
    assert heard(script) == [("start", "a")]
    assert script.pauses[-20:] == [5.0] * 20


def test_a_server_that_was_never_heard_is_given_up() -> None:
    script = Script(*[UNREACHED] * 5)
    with pytest.raises(errors.ServerUnavailable, match="was not heard"):
        script.play(FeedFollower(script.trying(), script.retries, None).steps())


@pytest.mark.parametrize(
    "answer",
    [refused(401, "invalid_api_key"), reading(change("a", "start"), error_event("token_ended", "x"))],
)
def test_what_is_said_for_good_is_raised(answer: Any) -> None:
    script = Script(answer)
    with pytest.raises(errors.TurnledgerError) as raised:
        script.play(FeedFollower(script.trying(), script.retries, None).steps())
    assert raised.value.code in ("invalid_api_key", "token_ended")


def test_without_retries_the_first_break_is_the_end() -> None:
    script = Script(reading(change("a", "start"), end=CUT), retries=Retries(times=0))
    with pytest.raises(errors.ServerUnavailable):
        script.play(FeedFollower(script.trying(), script.retries, None).steps())


def test_those_who_wait_for_one_server_do_not_come_all_at_once() -> None:
    script = Script(reading(change("a", "start"), end=CUT), *[UNREACHED] * 9, GONE, retries=Retries(times=3))
    script.pacing = Pacing(now=lambda: 0.0, chance=lambda: 0.5)
    assert heard(script) == [("start", "a")]
    assert script.pauses[-5:] == [3.75] * 5


def test_a_position_that_no_header_can_have_is_none() -> None:
    script = Script(reading(change("a", "start"), b'id: \xff\ndata: {"type":"start"}\n\n', end=CUT), GONE)
    heard(script)
    assert positions(script) == [None, "a"]


@pytest.mark.parametrize("after", ["ä", "a\nb"])
def test_one_cannot_begin_behind_it_either(after: str) -> None:
    with pytest.raises(errors.InvalidInput, match="position"):
        FeedFollower(Script().trying(), Retries(), after)
