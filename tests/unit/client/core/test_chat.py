"""Operations on one chat, opened by its id or by its conversation_key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.client.script import (
    BRANCH,
    CHAT,
    CUT,
    INFO,
    TURN,
    WHOLE,
    Script,
    error_reply,
    reply,
    turn_finished,
    turn_stream,
)
from turnledger import errors
from turnledger.client.core.chat import ChatCore
from turnledger.client.core.client import ClientCore
from turnledger.client.core.steps import ConnectionFailure
from turnledger.model.ids import TurnId

ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
COMMITTED = {"id": TURN, "number": 1, "kind": "completed", "parent": None, "input": [], "output": [ITEM]}
FOUND = reply({"data": [INFO], "next": None})

OTHER_BRANCH = "branch_01890000000070008000000000000009"


def chat(script: Script, id: str | None = CHAT, **named: Any) -> ChatCore:
    client = ClientCore("demo", script.retries, script.pacing)
    return ChatCore.open(client, id, named.get("conversation_key"), named.get("scope"))


def by_key(script: Script, scope: str | None = None) -> ChatCore:
    return chat(script, None, conversation_key="key", scope=scope)


def body(script: Script, at: int = -1) -> Any:
    return msgspec.json.decode(script.received[at].body or b"null")


def requests(script: Script) -> list[str]:
    return [f"{each.method} {each.path.replace(CHAT, 'C').replace(TURN, 'T')}" for each in script.received]


@pytest.mark.parametrize("wrong", ["", "conv_", "conv_x", TURN, CHAT + "0", CHAT.upper()])
def test_invalid_chat_id_is_refused_when_the_chat_is_opened(wrong: str) -> None:
    with pytest.raises(errors.InvalidId):
        chat(Script(), wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda chat: chat.edit("turn_1", "Hi", {}),
        lambda chat: chat.regenerate("turn_1", {}),
        lambda chat: chat.events("turn_1", 0),
        lambda chat: next(chat.stop("turn_1", None)),
        lambda chat: next(chat.siblings("turn_1")),
        lambda chat: next(chat.flag("turn_1", to_model=False)),
        lambda chat: next(chat.fork("turn_1", {}, {})),
        lambda chat: next(chat.undo("turn_1", False, {})),
    ],
    ids=["edit", "regenerate", "events", "stop", "siblings", "flag", "fork", "undo"],
)
def test_invalid_turn_id_is_refused_before_sending(call: Callable[[ChatCore], object]) -> None:
    with pytest.raises(errors.InvalidId):
        call(chat(Script()))


def test_chat_is_opened_by_either_id_or_conversation_key() -> None:
    with pytest.raises(errors.InvalidInput, match="Give the id of the chat"):
        chat(Script(), None)
    with pytest.raises(errors.InvalidInput, match="only the id of the chat"):
        chat(Script(), CHAT, conversation_key="key")


def test_send_by_conversation_key_repeats_the_key_each_time() -> None:
    script = Script(turn_stream(*WHOLE), turn_stream(*WHOLE))
    named = by_key(script, "support")
    assert named.id is None
    script.play(named.send("Hi", {}).steps())
    assert named.id == CHAT
    script.play(named.send("Hi", {}).steps())
    assert [body(script, at)["conversation_key"] for at in (0, 1)] == ["key", "key"]
    assert body(script)["scope"] == "support"


def test_unencodable_input_is_refused_before_sending() -> None:
    with pytest.raises(errors.InvalidInput):
        chat(Script()).send([object()], {})  # type: ignore[list-item]


def test_answer_of_an_unfinished_stream_raises() -> None:
    script = Script()
    this = chat(script)
    with pytest.raises(errors.RequestFailed, match="closed before the turn ended"):
        script.play(this.answer(this.send("Hi", {})))


def test_stop_names_a_turn_or_stops_the_running_one() -> None:
    ended = reply({"state": "kept", "committed": True, "failure": None})
    script = Script(ended, ended, reply({"state": None, "committed": False, "failure": None}))
    this = chat(script)
    stopped = script.play(this.stop(TURN, "keep"))
    assert stopped is not None
    assert (stopped.state, stopped.committed) == ("kept", True)
    assert body(script) == {"policy": "keep"}
    assert script.play(this.stop(None, None)) is not None
    assert script.play(this.stop(None, None)) is None
    assert requests(script) == ["POST /api/turns/T/stop", *["POST /api/chats/C/stop"] * 2]
    with pytest.raises(errors.InvalidInput):
        script.play(this.stop(None, "drop"))


def test_stop_tries_own_turns_in_the_order_of_their_requests() -> None:
    nothing = reply({"state": None, "committed": False, "failure": None})
    script = Script(*[nothing] * 65)
    this = chat(script)
    own = [this.send("Hi", {}) for _ in range(64)]
    for number, follower in enumerate(own):  # queued ones have their ids, too
        follower.turn = TurnId(f"{TURN[:-2]}{number:02x}")
    assert script.play(this.stop(None, None)) is None
    stops = [f"/api/turns/{follower.turn}/stop" for follower in own]
    assert [each.path for each in script.received] == [*stops, f"/api/chats/{CHAT}/stop"]


def test_stop_after_a_stop_reaches_the_next_own_turn_even_if_no_stream_is_read() -> None:
    ended = reply({"state": "kept", "committed": True, "failure": None})
    script = Script(*[ended] * 3)
    this = chat(script)
    own = [this.send("Hi", {}) for _ in range(2)]
    for number, follower in enumerate(own):
        follower.turn = TurnId(f"{TURN[:-2]}{number:02x}")
    for _ in range(3):
        script.play(this.stop(None, None))
    stops = [f"/api/turns/{follower.turn}/stop" for follower in own]
    assert [each.path for each in script.received] == [*stops, f"/api/chats/{CHAT}/stop"]


def test_stop_before_the_turn_began_is_sent_once_it_has() -> None:
    nothing = reply({"data": [], "next": None})
    script = Script(
        nothing,
        turn_stream(*WHOLE[:2], turn_finished(3, "kept")),
        reply({"state": "kept", "committed": True}),
    )
    this = by_key(script)
    following = this.send("Hi", {})
    assert script.play(this.stop(None, "keep")) is None
    script.play(following.steps())
    assert requests(script) == ["GET /api/chats", "POST /api/turns", "POST /api/turns/T/stop"]


def test_chat_by_conversation_key_is_looked_up_once() -> None:
    script = Script(FOUND, reply({**INFO, "title": "X"}), reply(INFO))
    named = by_key(script)
    script.play(named.update(title="X"))
    script.play(named.restore())
    assert requests(script) == ["GET /api/chats", "PATCH /api/chats/C", "POST /api/chats/C/restore"]
    with pytest.raises(errors.ConversationNotFound):
        (empty := Script(reply({"data": [], "next": None}))).play(by_key(empty).info())


def test_turn_pages_go_backwards() -> None:
    turns = [{**COMMITTED, "number": number} for number in (2, 3)]
    script = Script(
        reply({**INFO, "turns": turns, "before": 2, "attempts": []}),
        reply({**INFO, "turns": [COMMITTED], "before": None, "attempts": []}),
    )
    this = chat(script)
    first = script.play(this.turns_page(None, 2, branch=BRANCH))
    assert ([turn.number for turn in first], first.next) == ([3, 2], "2")
    last = script.play(this.turns_page("2", 2, branch=None))
    assert ([turn.number for turn in last], last.next) == ([1], None)
    assert dict(script.received[0].query) == {"limit": "2", "branch": BRANCH}
    assert dict(script.received[1].query) == {"before": "2", "limit": "2"}


def test_turn_pages_stay_on_the_branch_of_the_first_page() -> None:
    script = Script(
        reply({**INFO, "turns": [{**COMMITTED, "number": 2}], "before": 2, "attempts": []}),
        reply({**INFO, "branch": OTHER_BRANCH, "turns": [COMMITTED], "before": None, "attempts": []}),
    )
    this = chat(script)
    first = script.play(this.turns_page(None, 1, branch=None))
    script.play(this.turns_page(first.next, 1, branch=None))
    assert dict(script.received[0].query) == {"limit": "1"}
    assert dict(script.received[1].query) == {"before": "2", "limit": "1", "branch": BRANCH}


def test_turn_pages_continue_without_the_branch_if_it_is_not_found() -> None:
    turns = [{**COMMITTED, "number": 2}]
    script = Script(
        error_reply(404, "branch_not_found"),
        reply({**INFO, "turns": turns, "before": 2, "attempts": []}),
        reply({**INFO, "turns": [COMMITTED], "before": None, "attempts": []}),
    )
    this = chat(script)
    second = script.play(this.turns_page(f"3 {BRANCH}", 1, branch=None))
    script.play(this.turns_page(second.next, 1, branch=None))
    assert [dict(request.query).get("branch") for request in script.received] == [BRANCH, None, None]
    with pytest.raises(errors.BranchNotFound):
        named = Script(error_reply(404, "branch_not_found"))
        named.play(chat(named).turns_page("3", 1, branch=BRANCH))


# A change whose answer was lost.


def conflict(**values: Any) -> Any:
    error = error_reply(412, "revision_conflict")
    return reply({**msgspec.json.decode(error.body), "chat": {**INFO, **values}}, 412)


CHANGES: dict[str, Any] = {"title": "New", "tags": ["b", "a"], "pinned": True}
REQUESTED = {"title": "New", "tags": ["a", "b"], "pinned": True}


def test_update_whose_answer_was_lost_succeeds_if_the_conflict_shows_it_was_applied() -> None:
    script = Script(CUT, conflict(**REQUESTED, revision=4))
    assert script.play(chat(script).update(**CHANGES, revision=3)).title == "New"
    assert script.received[0].headers["if-match"] == '"3"'


@pytest.mark.parametrize(
    ("first", "values"),
    [
        (None, {**REQUESTED, "revision": 4}),
        (CUT, {**REQUESTED, "revision": 5}),
        (CUT, {**REQUESTED, "title": "Other", "revision": 4}),
        (CUT, {**REQUESTED, "tags": ["a"], "revision": 4}),
    ],
)
def test_update_overtaken_by_another_change_raises(
    first: ConnectionFailure | None, values: dict[str, Any]
) -> None:
    script = Script(*([first] if first else []), conflict(**values))
    with pytest.raises(errors.RevisionConflict) as raised:
        script.play(chat(script).update(**CHANGES, revision=3))
    assert raised.value.current == values["revision"]


def test_update_that_cleared_fields_is_recognized_after_a_lost_answer() -> None:
    script = Script(CUT, conflict(title="First words", named_by="words", metadata={}, tags=[], revision=4))
    script.play(chat(script).update(title=None, metadata=None, tags=None, revision=3))
    assert body(script) == {"title": None, "metadata": None, "tags": None}


# Moves and deletions.


def test_fork_switch_and_undo_use_one_idempotency_key_for_all_retries() -> None:
    script = Script(CUT, reply(INFO, 201), reply(INFO), reply(INFO))
    this = chat(script)
    script.play(this.fork(TURN, {"title": "Fork"}, {}))
    script.play(this.switch(BRANCH, {}))
    script.play(this.undo(None, True, {}))
    keys = [each.headers["idempotency-key"] for each in script.received]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert [body(script, at) for at in (1, 2, 3)] == [
        {"turn": TURN, "title": "Fork"},
        {"branch": BRANCH},
        {"forget": True},
    ]


def test_delete_whose_answer_was_lost_succeeds_if_the_chat_is_gone() -> None:
    gone = error_reply(404, "conversation_not_found")
    script = Script(CUT, gone)
    assert script.play(chat(script).delete(True)).state == "purged"
    assert dict(script.received[0].query) == {"purge": "true"}
    with pytest.raises(errors.ConversationNotFound):
        (alone := Script(gone)).play(chat(alone).delete(False))
