"""The turn stream recovers from any break: every event once and in order, and never a second turn."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client.script import (
    CHAT,
    CUT,
    OTHER_TURN,
    TURN,
    UNREACHED,
    Script,
    Streamed,
    error_event,
    error_reply,
    event,
    event_stream,
    text,
    turn_finished,
    turn_started,
    turn_stream,
)
from tests.unit.model.shapes import EXAMPLES, repeatable
from turnledger import errors
from turnledger.client.core.exchange import Retries
from turnledger.client.core.steps import ConnectionFailure, Reply, Request, Steps
from turnledger.client.core.turn_stream import TurnFollower
from turnledger.client.shapes import TurnRestarted
from turnledger.model.event import TextDelta, TurnFinished, TurnStarted
from turnledger.model.ids import TurnId

RECEIVED = ["started", "Hello", " there", "completed"]
REQUEST = Request(method="POST", path="/api/turns", headers={"idempotency-key": "k"}, body=b"{}")
WHOLE = (turn_started(), text(2, "Hello"), text(3, " there"), turn_finished(4))


def make_request() -> Steps[Request]:
    yield from ()
    return REQUEST


def make_follower(script: Script) -> TurnFollower:
    return TurnFollower(
        script.new_retry_count(), script.retries, make_request=make_request, idempotency_key="k"
    )


def followed(script: Script, following: TurnFollower | None = None) -> list[Any]:
    """Play the script; return the received events in short."""
    script.play((following or make_follower(script)).steps())
    return received(script)


def received(script: Script) -> list[Any]:
    def short(item: Any) -> Any:
        match item:
            case TextDelta():
                return item.text
            case TurnRestarted():
                return f"again {item.attempt}"
            case TurnStarted():
                return "started"
            case TurnFinished():
                return item.state.value
        return type(item).__name__

    return [short(each) for each in script.items]


def paths(script: Script) -> list[str]:
    return [f"{each.method} {each.headers.get('last-event-id', '')}".strip() for each in script.received]


def test_turn_stream_without_faults_yields_every_event() -> None:
    script = Script(turn_stream(*WHOLE))
    following = make_follower(script)
    assert followed(script, following) == RECEIVED
    assert (following.turn, following.conversation, following.state) == (TURN, CHAT, "created")
    assert (following.text, following.is_replayed) == ("Hello there", False)
    assert script.pauses == []


def test_turn_stream_yields_deltas_of_every_kind_and_has_the_text_alone() -> None:
    opened = {"type": "function_call", "call_id": "c", "name": "look", "arguments": ""}
    events = [
        turn_started(),
        event(2, "reasoning.delta", text="Hm."),
        event(3, "text.delta", text="Hello"),
        event(4, "refusal.delta", text="No."),
        event(5, "item.added", item=opened),
        event(6, "arguments.delta", call_id="c", text="{}"),
        event(7, "some.day", text="unknown"),
        turn_finished(8, "completed"),
    ]
    script = Script(turn_stream(*events))
    following = make_follower(script)
    shown = followed(script, following)
    kinds = ["ReasoningDelta", "Hello", "RefusalDelta", "ItemAdded", "ArgumentsDelta"]
    assert shown == ["started", *kinds, "completed"]
    assert following.text == "Hello"


def test_turn_stream_drops_the_text_after_the_last_item_of_a_resumed_turn() -> None:
    item = {"type": "message", "role": "assistant", "content": "Step. "}
    events = [
        turn_started(),
        event(2, "text.delta", text="Step. "),
        event(3, "item.done", item=item),
        event(4, "text.delta", text="Lost"),
        event(5, "turn.resumed"),
        event(6, "text.delta", text="Kept."),
        turn_finished(7, "completed"),
    ]
    script = Script(turn_stream(*events))
    following = make_follower(script)
    assert followed(script, following)[4] == "TurnResumed"
    assert following.text == "Step. Kept."


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_turn_stream_ignores_chunk_boundaries(size: int) -> None:
    whole = b"".join(WHOLE)
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert followed(Script(turn_stream(*pieces))) == RECEIVED


THIRD_TURN = "turn_01a1e29c3b807c3685c9ed1e24fc7aaa"
STARTED = (turn_started(), text(2, "He"))
ANEW = turn_stream(*WHOLE, turn=OTHER_TURN)
RESTARTED = ["started", "He", "again 2", *RECEIVED]
KEPT = (turn_started(), text(2, "Hel"), turn_finished(3, "kept"))
DIED = "process_died"
GONE = error_reply(404, "turn_not_found")
DEEP = b"id: 2\nevent: item.done\ndata: %s\n\n" % (b'{"type":"item.done","item":' + b"[" * 100_000)
LONG = b"id: " + b"9" * 5000 + b"\nevent: text.delta\ndata: {}\n\n"
GARBLED = b"id: 2\nevent: text.delta\ndata: {\xff\n\n"
CUT_AFTER_THREE = turn_stream(*WHOLE[:3], end=CUT)
REST = event_stream(*WHOLE[1:])

RECOVERIES: dict[str, tuple[list[Any], list[str], str]] = {
    "cut within an event": (
        [turn_stream(*WHOLE[:2], WHOLE[2][:9], end=CUT), event_stream(*WHOLE[2:])],
        RECEIVED,
        "POST, GET 2",
    ),
    "duplicate events": ([turn_stream(WHOLE[0], WHOLE[0], *WHOLE[:2], *WHOLE)], RECEIVED, "POST"),
    "heartbeats": ([turn_stream(b": \n\n", WHOLE[0], b": \n\n", *WHOLE[1:])], RECEIVED, "POST"),
    "a missing event": ([turn_stream(WHOLE[0], WHOLE[2]), REST], RECEIVED, "POST, GET 1"),
    "garbled data": ([turn_stream(WHOLE[0], GARBLED), REST], RECEIVED, "POST, GET 1"),
    "too deep data": ([turn_stream(WHOLE[0], DEEP), REST], RECEIVED, "POST, GET 1"),
    "too long a number": ([turn_stream(WHOLE[0], LONG), turn_stream(*WHOLE)], RECEIVED, "POST, POST"),
    "no answer": ([CUT, UNREACHED, turn_stream(*WHOLE)], RECEIVED, "POST, POST, POST"),
    "a transient error event": (
        [turn_stream(*WHOLE[:2], error_event("shutting_down")), CUT, event_stream(*WHOLE[2:])],
        RECEIVED,
        "POST, GET 2, GET 2",
    ),
    "a cut after the last event": ([turn_stream(*WHOLE, end=CUT)], RECEIVED, "POST"),
    "the same turn again": (
        [turn_stream(*WHOLE[:2]), turn_stream(*WHOLE, replayed=True)],
        RECEIVED,
        "POST, POST",
    ),
    "no scope to read": (
        [
            turn_stream(*WHOLE[:2], end=CUT),
            error_reply(403, "insufficient_scope"),
            CUT_AFTER_THREE,
            turn_stream(*WHOLE),
        ],
        RECEIVED,
        "POST, GET 2, POST, POST",
    ),
    "a moved turn": ([turn_stream(error_event("turn_moved")), GONE, ANEW], RECEIVED, "POST, GET 0, POST"),
    "a turn lost with its store": (
        [turn_stream(*STARTED, end=CUT), GONE, ANEW],
        RESTARTED,
        "POST, GET 2, POST",
    ),
    # It had sent two events and stored one; the client received the second, so the last has its number.
    "a turn that died after its last stored event": (
        [turn_stream(*STARTED, end=CUT), event_stream(), turn_stream(*WHOLE, turn=OTHER_TURN, replayed=True)],
        RESTARTED,
        "POST, GET 2, POST",
    ),
    **{
        f"a failure with its process: {code}": (
            [turn_stream(*STARTED, turn_finished(3, "failed", code)), ANEW],
            RESTARTED,
            "POST, POST",
        )
        for code in (DIED, "cancelled", "superseded", "store_unavailable", "ledger_closed")
    },
    "a resumed attempt": (
        [turn_stream(turn_started(), turn_finished(2, "resumed")), ANEW],
        ["started", "again 2", *RECEIVED],
        "POST, POST",
    ),
    "less kept than was sent": (
        [CUT_AFTER_THREE, event_stream(KEPT[2]), turn_stream(*KEPT, replayed=True)],
        [*RECEIVED[:3], "again 1", "started", "Hel", "kept"],
        "POST, GET 3, POST",
    ),
    "less stored than was sent of a turn that died": (
        [CUT_AFTER_THREE, event_stream(turn_finished(2, "failed", DIED)), ANEW],
        [*RECEIVED[:3], "again 2", *RECEIVED],
        "POST, GET 3, POST",
    ),
    "attempts without an event": (
        [
            turn_stream(end=CUT),
            GONE,
            turn_stream(*WHOLE[:2], turn_finished(3, "failed", DIED), turn=OTHER_TURN),
            turn_stream(*WHOLE, turn=THIRD_TURN),
        ],
        [*RECEIVED[:2], "again 3", *RECEIVED],
        "POST, GET 0, POST, POST",
    ),
}


@pytest.mark.parametrize("trouble", RECOVERIES)
def test_turn_stream_recovers_from(trouble: str) -> None:
    answers, events, requests = RECOVERIES[trouble]
    script = Script(*answers)
    following = make_follower(script)
    assert followed(script, following) == events
    assert ", ".join(paths(script)) == requests
    assert script.is_over
    streams = [each.headers for each in answers if isinstance(each, Streamed)]
    assert following.turn == [each["x-turn-id"] for each in streams if "x-turn-id" in each][-1]
    last = max((at for at, each in enumerate(events) if each.startswith("again")), default=-1)
    assert following.text == "".join(each for each in events[last + 2 : -1])
    for request in script.received:
        assert request == REQUEST or request.path == f"/api/turns/{TURN}/events"


DISCARDED = (turn_started(), turn_finished(2, "discarded"))
UNTRUSTED = ConnectionFailure("the certificate is not trusted", may_have_arrived=False, is_hopeless=True)
FOREIGN = "not a Turnledger server"


@pytest.mark.parametrize(
    ("answers", "error", "message", "events"),
    [
        ([UNREACHED] * 5, errors.ServerUnavailable, "never reached it: nothing was run", []),
        (
            [UNREACHED, CUT, *[UNREACHED] * 3],
            errors.ServerUnavailable,
            "may have begun, and may still be running",
            [],
        ),
        ([UNTRUSTED], errors.ServerUnavailable, "certificate", []),
        ([error_reply(503, "store_unavailable")] * 5, errors.StoreUnavailable, None, []),
        ([turn_stream(error_event("wait_ended", "invalid_request_error"))], errors.WaitEnded, None, []),
        ([Streamed({"content-type": "text/html"}, [b"<html>"])], errors.RequestFailed, FOREIGN, []),
        ([Streamed({"content-type": "text/event-stream"}, [])], errors.RequestFailed, FOREIGN, []),
        (
            [CUT_AFTER_THREE, event_stream(DISCARDED[1]), turn_stream(*DISCARDED)],
            errors.TurnStopped,
            None,
            [*RECEIVED[:3], "again 1", "started", "discarded"],
        ),
    ],
)
def test_turn_stream_raises_what_ends_it(
    answers: list[Any], error: type[Exception], message: str | None, events: list[str]
) -> None:
    script = Script(*answers)
    with pytest.raises(error, match=message):
        followed(script)
    assert (received(script), script.is_over) == (events, True)


@pytest.mark.parametrize(
    ("state", "failure", "error"),
    [
        ("failed", "model_timeout", errors.ModelTimeout),
        ("discarded", None, errors.TurnStopped),
        ("settled", "model_timeout", errors.ModelTimeout),
        ("settled", DIED, errors.TurnFailed),
        ("settled", None, errors.TurnStopped),
        ("kept", None, None),
    ],
)
def test_turn_stream_raises_the_failure_of_its_turn_after_the_last_event(
    state: str, failure: str | None, error: type[Exception] | None
) -> None:
    script = Script(turn_stream(turn_started(), turn_finished(2, state, failure)))
    with pytest.raises(error, match=f"{failure} happened" if failure else None) if error else nullcontext():
        followed(script)
    assert received(script) == ["started", state]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (CUT, errors.ServerUnavailable),
        (turn_stream(turn_started(), turn_finished(2, "failed", DIED)), errors.TurnFailed),
    ],
)
def test_turn_stream_without_retries_makes_one_try(answer: Any, error: type[Exception]) -> None:
    script = Script(answer, retries=Retries(times=0))
    with pytest.raises(error):
        followed(script)
    assert script.pauses == []


def test_turn_stream_of_a_replayed_turn_is_marked_as_replayed() -> None:
    script = Script(turn_stream(*WHOLE, replayed=True))
    following = make_follower(script)
    followed(script, following)
    assert following.is_replayed


def test_turn_stream_cut_anywhere_yields_every_event_once() -> None:
    whole = b"".join(WHOLE)
    for cut_at in range(len(whole) + 1):
        assert followed(Script(turn_stream(whole[:cut_at], end=CUT), event_stream(*WHOLE))) == RECEIVED, (
            cut_at
        )


@pytest.mark.parametrize(
    "passing",
    [
        error_reply(503, "shutting_down", retry_after="3"),
        error_reply(429, "queue_full", retry_after="3"),
        error_reply(500, "internal_error", retry_after="3"),
    ],
)
def test_turn_request_refused_with_retry_after_is_retried_then(passing: Reply) -> None:
    script = Script(passing, turn_stream(*WHOLE))
    assert followed(script) == RECEIVED
    assert script.pauses == [3.0]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error_reply(409, "conversation_busy"), errors.ConversationBusy),
        (error_reply(422, "idempotency_mismatch"), errors.IdempotencyMismatch),
        (error_reply(404, "conversation_not_found"), errors.ConversationNotFound),
        (error_reply(410, "conversation_deleted"), errors.ConversationDeleted),
        (error_reply(409, "turn_stopped"), errors.TurnStopped),
        (error_reply(502, "model_unavailable"), errors.ModelUnavailable),
        (error_reply(401, "invalid_api_key"), errors.NotAdmitted),
    ],
)
def test_turn_request_with_a_permanent_error_raises_immediately(answer: Reply, kind: type[Exception]) -> None:
    script = Script(answer)
    with pytest.raises(kind) as raised:
        followed(script)
    assert isinstance(raised.value, errors.TurnledgerError)
    assert (raised.value.status, raised.value.request_id) == (answer.status, "req_1")
    assert script.pauses == []


def test_turn_stream_progress_resets_the_retry_count() -> None:
    words = [text(number, str(number)) for number in range(2, 12)]
    cut = [event_stream(word, end=CUT) for word in words]
    script = Script(
        turn_stream(turn_started(), end=CUT),
        *cut,
        event_stream(turn_finished(12)),
        retries=Retries(times=1, first_pause=1.0),
    )
    assert followed(script) == ["started", *(str(number) for number in range(2, 12)), "completed"]
    assert set(script.pauses) == {1.0}


def test_turn_stream_without_progress_gives_up_and_names_the_running_turn() -> None:
    script = Script(turn_stream(turn_started(), end=CUT), CUT, CUT, CUT, CUT)
    with pytest.raises(
        errors.ServerUnavailable, match=f"{TURN} may still be running.*same idempotency_key"
    ) as raised:
        followed(script)
    assert raised.value.idempotency_key == "k"
    assert script.pauses == [1.0, 2.0, 4.0, 8.0]
    assert received(script) == ["started"]


def test_turn_request_to_a_server_that_keeps_shutting_down_raises_its_code() -> None:
    with pytest.raises(errors.ServerUnavailable, match="same idempotency_key") as raised:
        followed(Script(*[error_reply(503, "shutting_down")] * 5))
    assert (raised.value.code, raised.value.status, raised.value.request_id) == (
        "shutting_down",
        503,
        "req_1",
    )


def test_turn_stream_raises_a_permanent_error_event() -> None:
    error = error_event("token_ended", "invalid_request_error")
    for pieces in ((*WHOLE[:2], error), (b"".join((*WHOLE[:2], error)),)):
        script = Script(turn_stream(*pieces))
        with pytest.raises(errors.TokenEnded):
            followed(script)
        assert received(script) == ["started", "Hello"]
        assert script.noted[-1].startswith("keep k")


def test_turn_stream_of_a_turn_that_keeps_killing_its_process_gives_up() -> None:
    turns = [f"turn_0189000000007000800000000000000{number}" for number in range(9)]
    deaths = [
        turn_stream(turn_started(), turn_finished(2, "failed", "process_died"), turn=turn) for turn in turns
    ]
    script = Script(*deaths, retries=Retries(times=3))
    with pytest.raises(errors.TurnFailed) as raised:
        followed(script)
    assert raised.value.code == "process_died"
    assert received(script) == [
        "started",
        "again 2",
        "started",
        "again 3",
        "started",
        "again 4",
        "started",
        "failed",
    ]


def test_turn_stream_retried_under_a_generated_key_is_not_marked_as_replayed() -> None:
    script = Script(CUT, turn_stream(*WHOLE, replayed=True))
    made = TurnFollower(
        script.new_retry_count(),
        script.retries,
        make_request=make_request,
        idempotency_key="k",
        may_be_replayed=False,
    )
    followed(script, made)
    assert not made.is_replayed


def test_turn_stream_keeps_the_chat_state_of_its_first_answer() -> None:
    again = turn_stream(*WHOLE, turn=OTHER_TURN)
    again.headers["x-conversation-state"] = "continued"
    script = Script(turn_stream(turn_started(), turn_finished(2, "failed", "process_died")), again)
    following = make_follower(script)
    followed(script, following)
    assert following.state == "created"


LOGIN_PAGE = Streamed({"content-type": "text/html"}, [b"<html>"])
"""Of a proxy: a request that it refuses has not reached the server."""


@pytest.mark.parametrize(
    ("answers", "notes"),
    [
        ((turn_stream(*WHOLE),), ["record k", "forget k"]),
        (
            (turn_stream(turn_started(), turn_finished(2, "failed", "model_timeout")),),
            ["record k", "forget k"],
        ),
        ((error_reply(409, "conversation_busy"),), ["record k", "forget k"]),
        ((CUT,) * 5, ["record k", "keep k as tried"]),
        ((ConnectionFailure("nobody there", may_have_arrived=False),) * 5, ["record k", "keep k as untried"]),
        ((error_reply(503, "shutting_down"),) * 5, ["record k", "keep k as tried"]),
        ((error_reply(503, "store_unavailable"),) * 5, ["record k", "keep k as tried"]),
        ((error_reply(429, "queue_full"),) * 5, ["record k", "keep k as tried"]),
        ((error_reply(401, "token_expired"),), ["record k", "keep k as tried"]),
        ((LOGIN_PAGE,), ["record k", "keep k as tried"]),
        ((Reply(302, {"location": "http://portal.example/"}),), ["record k", "keep k as tried"]),
        ((Reply(407, {}, b"<html>"),), ["record k", "keep k as tried"]),
    ],
)
def test_turn_request_is_recorded_until_it_has_an_outcome(answers: tuple[Any, ...], notes: list[str]) -> None:
    script = Script(*answers)
    with suppress(errors.TurnledgerError):
        followed(script)
    assert script.noted == notes


def test_turn_stream_continues_if_a_pending_stop_fails() -> None:
    def stop(turn: TurnId) -> Steps[None]:
        yield from ()
        raise errors.NotAdmitted

    script = Script(turn_stream(*WHOLE))
    following = make_follower(script)
    following.stop_when_begun(stop)
    assert followed(script, following) == RECEIVED


def test_turn_stream_sends_a_pending_stop_once_the_turn_began() -> None:
    stopped: list[str] = []

    def stop(turn: TurnId) -> Steps[None]:
        stopped.append(turn)
        yield from ()

    script = Script(turn_stream(turn_started(), end=CUT), event_stream(turn_finished(2, "kept")))
    following = make_follower(script)
    following.stop_when_begun(stop)
    assert followed(script, following) == ["started", "kept"]
    assert stopped == [TURN]


def reader(script: Script, after: int = 0) -> TurnFollower:
    return TurnFollower(script.new_retry_count(), script.retries, turn=TurnId(TURN), after=after)


DEAD = event_stream(turn_started(), turn_finished(2, "failed", DIED))
READS: dict[str, tuple[list[Any], int, list[str], str]] = {
    "cut": ([event_stream(*WHOLE[:2], end=CUT), event_stream(*WHOLE[2:])], 0, RECEIVED, "GET 0, GET 2"),
    "ended early": ([event_stream(*WHOLE[:2]), event_stream(*WHOLE[2:])], 0, RECEIVED, "GET 0, GET 2"),
    "of a failed turn": ([DEAD], 0, ["started", "failed"], "GET 0"),
    "at the end": ([event_stream()], 4, [], "GET 4"),
    "beyond the last event": ([event_stream(turn_finished(2))], 4, [], "GET 4"),
    "ahead of the stored events": (
        [event_stream(*WHOLE[:3], end=CUT), event_stream(turn_finished(2, "failed", DIED)), DEAD],
        0,
        [*RECEIVED[:3], "again 1", "started", "failed"],
        "GET 0, GET 3, GET 0",
    ),
    "ahead of a dead turn": (
        [event_stream(*WHOLE[:3], end=CUT), event_stream(), DEAD, DEAD],
        0,
        [*RECEIVED[:3], "again 1", "started", "failed"],
        "GET 0, GET 3, GET 0, GET 0",
    ),
    "of withdrawn events": (
        [event_stream(*WHOLE[:2], end=CUT), event_stream(), event_stream(*WHOLE[:2])],
        0,
        RECEIVED[:2],
        "GET 0, GET 2, GET 0",
    ),
}


@pytest.mark.parametrize("read", READS)
def test_turn_reader_yields_each_event_once_and_raises_no_failure(read: str) -> None:
    answers, after, events, requests = READS[read]
    script = Script(*answers)
    assert followed(script, reader(script, after)) == events
    assert (", ".join(paths(script)), script.is_over) == (requests, True)


def test_turn_reader_of_an_unknown_turn_raises() -> None:
    script = Script(GONE)
    with pytest.raises(errors.TurnNotFound):
        followed(script, reader(script))


WORDS = ["Hello", " there", ", how", " are", " you?"]
LENGTH = len(b"".join(text(number, word) for number, word in enumerate(WORDS, 2)))
FAULTS = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, LENGTH + 200)),
    st.tuples(st.just("end"), st.integers(0, LENGTH + 200)),
    st.tuples(st.just("die"), st.integers(0, len(WORDS))),
    st.tuples(st.just("lose"), st.integers(0, len(WORDS))),
    st.sampled_from([("refuse", 503), ("refuse", 429), ("unreached", 0), ("unanswered", 0)]),
)


class Anything(Script):
    """A server that is true to its log, on a line that is not. A turn that dies keeps of its log what was
    written down; one that is lost with its store is not known any more."""

    def __init__(self, faults: list[tuple[str, int]]) -> None:
        super().__init__(retries=Retries(times=50, first_pause=0.0, max_pause=0.0))
        self._faults = list(faults)
        self._turns = 0
        self._log: list[bytes] | None = None

    def _answer(self, request: Request) -> Any:
        self.received.append(request)
        fault, at = self._faults.pop(0) if self._faults else ("none", 0)
        if fault == "refuse":
            return error_reply(at, "server_busy")
        if fault == "unreached":
            return UNREACHED
        if fault == "lose" and self._log is not None:
            self._log = None
        answer = (
            self._start() if request.method == "POST" else self._read(int(request.headers["last-event-id"]))
        )
        if fault == "unanswered":
            return CUT
        if isinstance(answer, Reply):
            return answer
        if fault == "die" and self._log is not None:
            self._die(at)
        if fault in ("cut", "end", "die"):
            sent = b"".join(answer.pieces)[: at if fault != "die" else LENGTH // 2]
            answer.pieces, answer.end = [sent], b"" if fault == "end" else CUT
        self._open = iter([*filter(None, answer.pieces), answer.end, b""])
        return Reply(200, answer.headers)

    def _start(self) -> Any:
        if self._log is None or b"process_died" in self._log[-1]:
            self._turns += 1
            self._log = [turn_started(), *(text(number, word) for number, word in enumerate(WORDS, 2))]
            self._log.append(turn_finished(len(WORDS) + 2))
        return turn_stream(*self._log, turn=f"turn_018900000000700080000000000000{self._turns:02x}")

    def _read(self, after: int) -> Any:
        if self._log is None:
            return error_reply(404, "turn_not_found")
        return event_stream(*self._log[after:])

    def _die(self, written: int) -> None:
        assert self._log is not None
        if b"process_died" not in self._log[-1]:
            self._log = [*self._log[: 1 + written], turn_finished(2 + written, "failed", "process_died")]


@settings(repeatable, max_examples=2 * EXAMPLES)
@given(faults=st.lists(FAULTS, max_size=12))
def test_turn_stream_under_random_faults_yields_every_event_once(faults: list[tuple[str, int]]) -> None:
    script = Anything(faults)
    following = make_follower(script)
    script.play(following.steps())
    since = max((at for at, item in enumerate(script.items) if isinstance(item, TurnRestarted)), default=-1)
    events = script.items[since + 1 :]
    assert [event.number for event in events] == list(range(1, len(WORDS) + 3))
    assert isinstance(events[-1], TurnFinished)
    assert following.text == "".join(WORDS)
    for part in _between_restarts(script.items):
        assert [event.number for event in part] == list(range(1, len(part) + 1))


def _between_restarts(items: list[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = [[]]
    for each in items:
        if isinstance(each, TurnRestarted):
            parts.append([])
        else:
            parts[-1].append(each)
    return parts


def test_random_fault_scenario_includes_restarts() -> None:
    script = Anything([("die", 1), ("cut", 40), ("lose", 0), ("none", 0)])
    following = make_follower(script)
    script.play(following.steps())
    assert len(_between_restarts(script.items)) >= 2
    assert following.text == "".join(WORDS)
