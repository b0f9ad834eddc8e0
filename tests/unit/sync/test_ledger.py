"""The blocking ledger: the operations of the awaiting one, for threads, after forks, and up to the exit."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import turnledger
from turnledger import RunningTurn as AwaitingTurn
from turnledger import sync
from turnledger.errors import ConversationDeleted, LedgerClosed, LedgerElsewhere
from turnledger.sync import Chat, Ledger, RunningTurn
from turnledger.types import Chats, TurnBlock

TWINS = [
    (turnledger.Ledger, sync.Ledger),
    (Chats, sync.Chats),
    (turnledger.Chat, sync.Chat),
    (turnledger.RunningTurn, sync.RunningTurn),
    (TurnBlock, sync.TurnBlock),
]
AWAITING_ONLY = {
    "Ledger.over": {"clock", "random"},  # for tests of the engine
    "RunningTurn.task": set(),
}


def answer(turn: RunningTurn) -> None:
    turn.emit(turn.input[0].text)


@pytest.mark.parametrize(("awaiting", "blocking"), TWINS, ids=[each.__name__ for each, _ in TWINS])
def test_blocking_class_has_every_public_member_with_the_same_parameters(
    awaiting: type, blocking: type
) -> None:
    for name, member in vars(awaiting).items():
        if name.startswith(("_", "note_")) or AWAITING_ONLY.get(f"{awaiting.__name__}.{name}") == set():
            continue
        twin = inspect.getattr_static(blocking, name)
        if isinstance(member, property):
            assert isinstance(twin, property), name
            continue
        function, twin = getattr(awaiting, name), getattr(blocking, name)
        expected = set(inspect.signature(function).parameters)
        left_out = AWAITING_ONLY.get(f"{awaiting.__name__}.{name}", set())
        assert set(inspect.signature(twin).parameters) == expected - left_out, name
        assert not inspect.iscoroutinefunction(twin), name
        assert not inspect.isasyncgenfunction(twin), name


def test_threads_share_a_ledger_and_their_turns_form_a_chain(tmp_path: Path) -> None:
    with Ledger.open(f"sqlite:///{tmp_path}/chats.db") as ledger, ThreadPoolExecutor(8) as threads:

        def talk(number: int) -> int:
            chat = ledger.conversation(conversation_key=f"k{number % 2}")
            with chat.turn(f"q{number}") as turn:
                turn.emit(str(len(turn.history)))
            return turn.number

        assert sorted(threads.map(talk, range(40))) == sorted([*range(1, 21)] * 2)
        for key in ("k0", "k1"):
            turns = ledger.conversation(conversation_key=key).turns()
            assert [turn.text for turn in turns] == [str(number) for number in range(20)]


def test_calls_inside_a_running_event_loop_block_it_and_return(ledger: Ledger) -> None:
    async def cell() -> str:
        return ledger.run(answer, "Hello").text

    assert asyncio.run(cell()) == "Hello"


def test_call_on_the_thread_of_the_ledger_is_refused(ledger: Ledger) -> None:
    chat = ledger.conversation()

    async def call_back(turn: AwaitingTurn) -> None:
        with pytest.raises(LedgerElsewhere, match="its own thread"):
            chat.turns()
        turn.emit("refused")

    assert chat.run(call_back, "Hello").text == "refused"


def test_chats_of_an_owner_are_opened_listed_forked_and_exported(ledger: Ledger) -> None:
    ann = ledger.for_owner("ann", scope="shop")
    chat = ann.conversation(conversation_key="k", title="Tea")
    turn = chat.run(answer, "Green tea?")
    assert [entry.conversation.id for entry in ann.list().chats] == [chat.id]
    assert [hit.conversation.id for hit in ann.search("green").hits] == [chat.id]
    assert isinstance(ann.of_turn(turn.id), Chat)
    fork = chat.fork()
    with fork.edit(turn.id, "Black tea?") as edited:
        edited.emit("yes")
    assert [each.text for each in fork.turns()] == ["yes"]
    lines = ann.export(chat.id)
    chat.delete(purge=True)
    with pytest.raises(ConversationDeleted):
        next(lines)
    assert ledger.conversation(create=True).is_new


def test_import_reads_the_export_of_another_ledger_and_its_own(ledger: Ledger) -> None:
    chat = ledger.conversation(conversation_key="k")
    chat.run(answer, "Hello")
    with Ledger.open() as other:
        assert [each.did for each in other.import_lines(ledger.export_all())] == ["imported"]
        assert [each.text for each in other.conversation(conversation_key="k").turns()] == ["Hello"]
    assert [each.did for each in ledger.import_lines(ledger.export_all())] == ["unchanged"]


def test_changes_follow_what_other_threads_do_until_the_iterator_is_closed(ledger: Ledger) -> None:
    changes = ledger.changes()
    assert next(changes).kind == "start"
    thread = threading.Thread(target=lambda: ledger.run(answer, "Hello"))
    thread.start()
    kinds = []
    for change in changes:
        kinds.append(str(change.kind))
        if change.kind == "turn.committed":
            break
    thread.join()
    assert "turn.running" in kinds


def test_work_runs_durable_turns_with_a_blocking_runner_until_closed() -> None:
    with Ledger.open() as ledger:
        chat = ledger.conversation()
        turns = [chat.enqueue(f"q{number}") for number in range(3)]
        worker = threading.Thread(target=lambda: ledger.work(answer))
        worker.start()
        assert [chat.outcome(turn).state for turn in turns] == ["completed"] * 3
    worker.join()


def test_closed_ledger_refuses_calls_and_ends_those_that_wait() -> None:
    ledger = Ledger.open()
    chat = ledger.conversation()
    is_queued, problems = threading.Event(), []

    def wait() -> None:
        block = chat.turn("Second")
        block.when_queued(lambda _: is_queued.set())
        try:
            block.run(answer)
        except LedgerClosed as problem:
            problems.append(problem)

    with pytest.raises(LedgerClosed), chat.turn("First") as turn:
        thread = threading.Thread(target=wait)
        thread.start()
        is_queued.wait()
        ledger.close()
        thread.join()
        turn.emit("late")
    assert len(problems) == 1
    ledger.close()
    with pytest.raises(LedgerClosed):
        chat.turns()


FORKS = """
import os, sys
from turnledger.errors import LedgerElsewhere
from turnledger.sync import Ledger

ledger = Ledger.open(sys.argv[1])
chat = ledger.conversation(conversation_key="k")
child = os.fork()
if child == 0:
    try:
        with chat.turn("in the child") as turn:
            turn.emit("never")
    except LedgerElsewhere as refused:
        print(refused, flush=True)
        with Ledger.open() as own, own.turn("Hello") as turn:
            turn.emit("a ledger of its own")
        sys.exit(7)                              # runs what is registered for the exit
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
with chat.turn("in the parent") as turn:
    turn.emit("works")
print([turn.text for turn in chat.turns()])
"""

EXITS = """
import sys, threading
from turnledger.sync import Ledger

ledger = Ledger.open(sys.argv[1])
chat = ledger.conversation(conversation_key="k")
with chat.turn("Hello") as turn:
    turn.emit("kept")
is_open = threading.Event()
def run():
    with chat.turn("Hello") as turn:
        turn.emit("open at the exit")
        is_open.set()
        threading.Event().wait()
threading.Thread(target=run, daemon=True).start()
is_open.wait()
"""


def run_script(code: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs os.fork")
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_forked_process_is_told_to_open_a_ledger_of_its_own(store: str, tmp_path: Path) -> None:
    code = (
        FORKS if sys.version_info < (3, 12) else f"import warnings; warnings.simplefilter('ignore')\n{FORKS}"
    )
    refusal, history = run_script(
        code, store.replace("sqlite", f"sqlite:///{tmp_path}/chats.db")
    ).splitlines()
    assert refusal.startswith("This ledger was opened before os.fork().")
    assert history == "['works']"


def test_exit_of_the_program_closes_the_ledger_and_ends_its_open_turn(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chats.db"
    run_script(EXITS, url)
    with Ledger.open(url) as ledger:
        chat = ledger.conversation(conversation_key="k", create=False)
        assert [turn.text for turn in chat.turns()] == ["kept"]
        [left] = chat.attempts()
        assert left.attempt.failure is not None
        assert left.attempt.failure.code == "ledger_closed"
