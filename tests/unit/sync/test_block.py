"""Blocking turns: commit, failure, stops and interrupts, with blocking and awaiting runners."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from random import Random

import pytest

from turnledger import RunningTurn as AwaitingTurn
from turnledger import TurnFinished
from turnledger.errors import EmptyTurn, InvalidInput, TurnEnded, TurnReplayed, TurnStopped
from turnledger.sync import Chat, Ledger, RunningTurn

CALL = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}


@pytest.fixture
def chat(ledger: Ledger) -> Chat:
    return ledger.conversation(conversation_key="k")


def texts(chat: Chat) -> list[str]:
    return [turn.text for turn in chat.turns()]


def answer(turn: RunningTurn) -> None:
    turn.emit(f"{len(turn.messages)} shown")


async def answer_on_the_loop(turn: AwaitingTurn) -> None:
    turn.emit(f"{len(turn.messages)} shown")


def interrupt() -> None:
    """Send Ctrl-C to the main thread, which runs the tests."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_block_left_normally_commits_and_shows_its_history_to_the_next(chat: Chat) -> None:
    with chat.turn("first") as turn:
        turn.emit("one")
        turn.details["model"] = "none"
    with chat.turn("second") as turn:
        assert [each["content"] for each in turn.messages] == ["first", "one", "second"]
        turn.emit("two")
    assert (texts(chat), turn.state, turn.number) == (["one", "two"], "completed", 2)
    assert chat.turns()[0].details == {"model": "none"}


def test_block_left_by_an_exception_raises_it_and_leaves_the_history_unchanged(chat: Chat) -> None:
    with pytest.raises(ValueError, match="broken"), chat.turn("Hello") as turn:
        turn.emit("so far")
        raise ValueError("broken")
    assert (texts(chat), turn.state) == ([], "failed")
    with pytest.raises(EmptyTurn), chat.turn("Hello"):
        pass
    with pytest.raises(TurnEnded):
        turn.emit("late")


def test_block_used_twice_is_refused(chat: Chat) -> None:
    block = chat.turn("Hello")
    block.run(answer)
    with pytest.raises(InvalidInput), block:
        pass
    assert texts(chat) == ["1 shown"]


@pytest.mark.parametrize("runner", [answer, answer_on_the_loop])
def test_run_with_an_idempotency_key_returns_the_committed_turn_again(chat: Chat, runner: object) -> None:
    turns = [chat.run(runner, "Hello", idempotency_key="once") for _ in range(2)]  # type: ignore[arg-type]
    assert turns[0] == turns[1]
    assert texts(chat) == ["1 shown"]
    with pytest.raises(TurnReplayed), chat.turn("Hello", idempotency_key="once"):
        pass


def test_tool_runs_in_the_thread_of_the_caller_and_its_error_fails_the_turn(chat: Chat) -> None:
    threads = []

    def pay() -> str:
        threads.append(threading.current_thread())
        return "paid"

    def decline() -> str:
        raise StopIteration  # which no coroutine can raise

    with chat.turn("Pay") as turn:
        assert turn.call(CALL, pay).fields["output"] == "paid"
        turn.emit("done")
    with pytest.raises(RuntimeError, match="StopIteration"), chat.turn("Pay") as turn:
        turn.call(CALL, decline)
    assert threads == [threading.current_thread()]
    assert turn.state == "failed"


def test_stop_from_another_thread_ends_the_turn_before_its_block_is_left(ledger: Ledger, chat: Chat) -> None:
    with pytest.raises(TurnStopped) as stopped, chat.turn("Hello") as turn:
        turn.emit("so far")
        with pytest.raises(InvalidInput):
            chat.outcome(turn.id)  # would wait for itself
        outcomes = in_thread(lambda: ledger.conversation(chat.id).stop())
        assert outcomes[0].state == "kept"
        with chat.turn("Next") as following:  # the lane is free
            following.emit("next")
        turn.emit("late")
    assert stopped.value.turn is not None
    assert texts(chat) == ["so far", "next"]


def in_thread(work: object) -> list[object]:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))  # type: ignore[operator]
    thread.start()
    thread.join()
    return results


@pytest.mark.parametrize(("policy", "kept"), [("keep", ["so far"]), ("discard", [])])
def test_interrupt_in_the_block_ends_the_turn_by_its_stop_policy(
    chat: Chat, policy: str, kept: list[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), chat.turn("Hello", on_stop=policy) as turn:
        turn.emit("so far")
        interrupt()
        turn.emit("never")
        turn.emit("never")
    assert [text.removesuffix("never") for text in texts(chat)] == kept


def test_interrupt_of_an_awaiting_runner_keeps_the_turn_and_ends_the_runner(chat: Chat) -> None:
    ended = threading.Event()

    async def stall(turn: AwaitingTurn) -> None:
        turn.emit("so far")
        interrupt()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        chat.run(stall, "Hello")
    assert ended.is_set()
    assert texts(chat) == ["so far"]


def test_interrupt_while_the_turn_waits_for_its_lane_withdraws_it(ledger: Ledger, chat: Chat) -> None:
    with chat.turn("Hello") as turn:
        block = chat.turn("Second")
        block.when_queued(lambda _: interrupt())
        with pytest.raises(KeyboardInterrupt), block:
            pass
        turn.emit("one")
    with chat.turn("Third") as turn:
        turn.emit("three")
    assert texts(chat) == ["one", "three"]
    assert ledger.check(at_rest=True) == []


def test_block_that_is_dropped_without_being_left_frees_its_lane(ledger: Ledger, chat: Chat) -> None:
    turn = chat.turn("Hello").__enter__()
    *_, last = chat.events(turn.id)
    assert isinstance(last, TurnFinished)
    assert last.state == "failed"
    assert chat.run(answer, "Next", on_busy="reject").text == "1 shown"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one that hits a finalizer
@pytest.mark.filterwarnings("ignore:coroutine 'hold' was never awaited:RuntimeWarning")
def test_interrupts_at_any_moment_leave_no_turn_open(ledger: Ledger, chat: Chat) -> None:
    random = Random(1)

    def raise_interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_interrupt)
    try:
        for _ in range(100):
            with suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
                with chat.turn("Hello") as turn:
                    turn.emit("yes")
                signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert chat.run(answer, "Last").text
    assert ledger.check(at_rest=True) == []


def test_interrupt_of_a_wait_for_events_leaves_the_turn_alone(chat: Chat) -> None:
    with chat.turn("Hello") as turn:
        turn.emit("one")
        with pytest.raises(KeyboardInterrupt):
            for event in chat.events(turn.id):
                if event.number == 2:
                    threading.Thread(target=interrupt).start()
        turn.emit(" two")
    assert texts(chat) == ["one two"]
    assert isinstance(list(chat.events(turn.id))[-1], TurnFinished)
