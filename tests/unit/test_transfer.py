"""An export imported elsewhere recreates the chats; a damaged file leaves the store consistent."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnledger import Chat, Ledger, Limits, transfer
from turnledger.engine.transfer.export import PAGE
from turnledger.engine.transfer.import_write import compare_next
from turnledger.errors import InvalidInput, TurnledgerError
from turnledger.hosting import Host
from turnledger.model.transfer import ENDS, ImportOutcome
from turnledger.stores.memory import Database, MemoryStore
from turnledger.stores.url import open_store
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.transfer import LONG, REST, WORK, Pace
from turnledger.types import ImportReport, TurnKind

BOOM = RuntimeError("the model broke")
OUTPUTS: dict[str, list[Any]] = {
    "text": ["Yes."],
    "tools": [Think(), Tool("look"), Tool("pay", result="paid"), "Done."],
    "asks": [Ask("weather")],
    "kept": [Tool("look"), "Hel", BOOM],
    "fails": [Tool("pay"), BOOM],
}
TEXTS = st.sampled_from(["Hi", "ünïcode 💥", "line\nbreak  ", '{"json": 1}'])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), TEXTS, st.sampled_from(sorted(OUTPUTS))),
        st.tuples(st.just("edit"), st.integers(0, 5), st.sampled_from(sorted(OUTPUTS))),
        st.tuples(st.just("regenerate"), st.just(0), st.just("text")),
        st.tuples(st.just("undo"), st.just(0), st.just("")),
        st.tuples(st.just("switch"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("fork"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("flag"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("instruct"), TEXTS, st.sampled_from(["lasting", "once", "none"])),
        st.tuples(st.just("new"), st.integers(0, 3), st.just("")),
        st.tuples(st.just("rename"), TEXTS, st.just("")),
    ),
    max_size=14,
)
EXAMPLES = int(os.environ.get("TRANSFER_EXAMPLES", "12"))
hypothesised = settings(
    derandomize="TRANSFER_EXAMPLES" not in os.environ,
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@asynccontextmanager
async def ledger_over(store: str, seed: int = 1, clock: FakeClock | None = None) -> AsyncIterator[Ledger]:
    limits = Limits(lease_time=600.0, flush_every=6_000.0)
    with TemporaryDirectory() as folder:
        opened = (
            MemoryStore(Database())
            if store == "memory"
            else await open_store(f"sqlite:///{Path(folder) / 'chats.db'}")
        )
        over = Ledger.over(opened, limits=limits, clock=clock or FakeClock(), random=Random(seed))
        async with await over as ledger:
            yield ledger


class Talk:
    """Does what hypothesis thinks of."""

    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger = ledger
        self.clock = clock
        self.chats: list[Chat] = []
        self.branches: dict[str, list[str]] = {}

    async def do(self, what: str, which: Any, how: str) -> None:
        self.clock.advance(1.5)
        if not self.chats or what == "new":
            key = f"key {which}" if which in (1, 2) else None
            self.chats.append(
                await self.ledger.for_owner("local", scope="s").conversation(conversation_key=key)
            )
            return
        chat = self.chats[-1]
        turns = await chat.turns()
        turn = turns[which % len(turns)] if turns and isinstance(which, int) else None
        with suppress(RuntimeError, InvalidInput, TurnledgerError):
            await self._do(chat, turn, what, which, how)
        self.branches.setdefault(chat.id, []).append(str((await chat.info()).branch))

    async def _do(self, chat: Chat, turn: Any, what: str, which: Any, how: str) -> None:
        if what == "run":
            on_failure = "keep" if how == "kept" else "settle"
            await chat.run(ScriptedModel(OUTPUTS[how]), which, on_failure=on_failure)
        elif what == "edit" and turn is not None:
            await chat.edit(turn.id, "edited").run(ScriptedModel(OUTPUTS[how]))
        elif what == "regenerate":
            await chat.regenerate().run(ScriptedModel(["Again."]))
        elif what == "undo":
            await chat.undo()
        elif what == "switch" and chat.id in self.branches:
            known = self.branches[chat.id]
            await chat.switch(known[which % len(known)])
        elif what == "fork" and turn is not None:
            self.chats.append(await chat.fork(turn.id))
        elif what == "flag" and turn is not None:
            await chat.flag(turn.id, which % len(turn.items), to_model=False, to_user=which % 2 == 0)
        elif what == "instruct":
            name = "instructions_once" if how == "once" else "instructions"
            await chat.run(ScriptedModel(["Ok."]), "Hi", **{name: "" if how == "none" else which})
        elif what == "rename":
            await chat.update(title=which, metadata={"a": which})


async def exported(ledger: Ledger) -> bytes:
    return b"".join([line async for line in ledger.for_owner("local").export_all()])


async def imported(ledger: Ledger, file: bytes) -> list[ImportReport]:
    return [report async for report in ledger.import_lines([file])]


def by_chat(file: bytes) -> list[bytes]:
    chats: list[bytes] = []
    for line in file.splitlines(keepends=True):
        if line.startswith(b'{"type":"chat"'):
            chats.append(b"")
        chats[-1] += line
    return chats


async def talked(store: str, steps: Sequence[tuple[str, Any, str]]) -> bytes:
    clock = FakeClock()
    async with ledger_over(store, clock=clock) as ledger:
        talk = Talk(ledger, clock)
        for step in steps:
            await talk.do(*step)
        return await exported(ledger)


@pytest.mark.parametrize(("here", "there"), [("memory", "sqlite"), ("sqlite", "memory")])
@hypothesised
@given(steps=STEPS, seed=st.integers(0, 9))
def test_export_imported_elsewhere_recreates_the_same_chats(
    here: str, there: str, steps: list[tuple[str, Any, str]], seed: int
) -> None:
    async def story() -> None:
        file = await talked(here, steps)
        chats = by_chat(file)
        Random(seed).shuffle(chats)
        async with ledger_over(there, seed=77) as ledger:
            reports = await imported(ledger, b"".join(chats))
            assert [report.did for report in reports] == [ImportOutcome.IMPORTED] * len(chats)
            assert await exported(ledger) == file
            assert await ledger.check() == []
            again = await imported(ledger, file)
            assert [report.did for report in again] == [ImportOutcome.UNCHANGED] * len(chats)
            assert await exported(ledger) == file

    asyncio.run(story())


@pytest.fixture(scope="module")
def rich() -> bytes:
    """A file with much in it."""
    steps = [
        ("new", 1, ""),
        ("run", "Hi", "tools"),
        ("run", "Hi", "asks"),
        ("run", "Hi", "kept"),
        ("run", "Hi", "fails"),
        ("edit", 1, "tools"),
        ("flag", 1, ""),
        ("instruct", "Hi", "lasting"),
        ("fork", 1, ""),
        ("run", "Hi", "asks"),
        ("edit", 0, "asks"),
        ("undo", 0, ""),
        ("run", "Hi", "text"),
    ]
    return asyncio.run(talked("memory", steps))


SPOILT = st.one_of(
    st.tuples(st.just("drop"), st.integers(0, 100), st.none()),
    st.tuples(st.just("twice"), st.integers(0, 100), st.none()),
    st.tuples(st.just("swap"), st.integers(0, 100), st.none()),
    st.tuples(st.just("cut"), st.integers(1, 4000), st.none()),
    st.tuples(st.just("byte"), st.integers(0, 20_000), st.integers(0, 255)),
    st.tuples(st.just("field"), st.integers(0, 100), st.integers(0, 100)),
)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@hypothesised
@given(spoils=st.lists(SPOILT, min_size=1, max_size=6), seed=st.integers(0, 99))
def test_import_of_a_damaged_file_leaves_the_store_consistent(
    rich: bytes, store: str, spoils: list[tuple[str, int, Any]], seed: int
) -> None:
    file = rich
    for what, where, value in spoils:
        file = spoilt(file, what, where, value, Random(seed))

    async def story() -> None:
        async with ledger_over(store, seed=78) as ledger:
            reports = await imported(ledger, file)
            assert await ledger.check() == []
            ends = {report.line: report.did for report in reports if report.did in ENDS}
            again = await imported(ledger, file)
            for report in again:
                if (
                    ends.get(report.line) is ImportOutcome.IMPORTED
                    and report.turn is None
                    and report.did in ENDS
                ):
                    assert report.did in (ImportOutcome.UNCHANGED, ImportOutcome.CONFLICT)
            assert ImportOutcome.IMPORTED not in {report.did for report in again}
            export = await exported(ledger)
            assert await ledger.check() == []
        async with ledger_over("memory", seed=79) as other:
            reports = await imported(other, export)
            assert {report.did for report in reports} <= {ImportOutcome.IMPORTED}
            assert await exported(other) == export

    asyncio.run(story())


def spoilt(file: bytes, what: str, where: int, value: Any, random: Random) -> bytes:
    lines = file.splitlines(keepends=True)
    if not lines:
        return file
    at = where % len(lines)
    if what == "drop":
        del lines[at]
    elif what == "twice":
        lines.insert(at, lines[where * 7 % len(lines)])
    elif what == "swap":
        other = where * 5 % len(lines)
        lines[at], lines[other] = lines[other], lines[at]
    elif what == "cut":
        return file[:-where]
    elif what == "byte":
        at = where % len(file)
        return file[:at] + bytes([value]) + file[at + 1 :]
    elif what == "field":
        lines[at] = _other_field(lines, at, random)
    return b"".join(lines)


def _other_field(lines: list[bytes], at: int, random: Random) -> bytes:
    """A line with a field of another one, or without it."""
    try:
        line = msgspec.json.decode(lines[at])
        other = msgspec.json.decode(lines[random.randrange(len(lines))])
        name = random.choice(sorted(line))
    except (ValueError, IndexError, TypeError):
        return lines[at]
    if name in other and name != "type":
        line[name] = other[name]
    elif name not in ("type", "id"):
        del line[name]
    return msgspec.json.encode(line) + b"\n"


def test_damaged_file_fixture_contains_every_kind_of_turn(rich: bytes) -> None:
    for kind in TurnKind:
        assert f'"kind":"{kind.value}"'.encode() in rich
    assert b'"flags"' in rich
    assert len(by_chat(rich)) == 2


async def test_import_of_a_chat_dated_in_the_future_clamps_its_use_time_or_refuses_it() -> None:
    async with ledger_over("memory") as ledger:
        now = Host(ledger).clock.now_ms()
        late = now + 365 * 24 * 3600 * 1000
        chat = {"type": "chat", "schema_version": 1, "id": "a", "created_at": now, "touched_at": late}
        made = {**chat, "id": "b", "created_at": late}
        ahead = {**chat, "id": "c", "touched_at": now + 60_000}
        file = b"".join(msgspec.json.encode(each) + b"\n" for each in (chat, made, ahead))
        for ends in (
            [ImportOutcome.IMPORTED, ImportOutcome.REFUSED, ImportOutcome.IMPORTED],
            [ImportOutcome.UNCHANGED, ImportOutcome.REFUSED, ImportOutcome.UNCHANGED],
        ):
            reports = [each async for each in ledger.import_lines([file])]
            assert [each.did for each in reports if each.did in ENDS] == ends
            assert [each.line for each in reports if each.did is ImportOutcome.REPAIRED] == [1]
        listed = (await ledger.list()).chats
        assert [each.conversation.touched_at for each in listed] == [now + 60_000, now]


LINES = 2 * PAGE + 20


def long_file(*changes: tuple[int, str, Any], lines: int = LINES) -> bytes:
    """A chat and its turns, with changed fields of some lines."""
    base = {"schema_version": 1, "chat": "long", "created_at": 1, "committed_at": 1, "kind": "completed"}
    ask = {"type": "message", "role": "user", "content": "Hi"}
    file: list[dict[str, Any]] = [
        {"schema_version": 1, "type": "chat", "id": "long", "title": "Long", "created_at": 1, "touched_at": 1}
    ]
    for number in range(1, lines):
        parent = f"t{number - 1}" if number > 1 else None
        line = {"type": "turn", "id": f"t{number}", "parent": parent, "input": [ask], "output": []}
        file.append({**base, **line})
    for at, field, value in changes:
        file[at][field] = value
    return b"".join(msgspec.json.encode(line) + b"\n" for line in file)


ANOTHER = [{"type": "message", "role": "user", "content": "Ho"}]


@pytest.mark.parametrize("keep_ids", [True, False])
@pytest.mark.parametrize(
    ("again", "outcome", "pages"),
    [
        (long_file(), ImportOutcome.UNCHANGED, 4),
        (long_file((1, "input", ANOTHER)), ImportOutcome.CONFLICT, 1),
        (long_file((-1, "input", ANOTHER)), ImportOutcome.CONFLICT, 3),
        (long_file((0, "title", "Short")), ImportOutcome.CONFLICT, 4),
        (long_file(lines=LINES - 1), ImportOutcome.CONFLICT, 3),
        (long_file(lines=LINES + 1), ImportOutcome.CONFLICT, 4),
    ],
    ids=["equal", "first turn", "last turn", "title", "turn less", "turn more"],
)
async def test_existing_long_chat_is_compared_by_pages_up_to_the_first_difference(
    again: bytes, outcome: ImportOutcome, pages: int, keep_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    async def counted(*given: Any) -> Any:
        nonlocal compared
        compared += 1
        return await compare_next(*given)

    monkeypatch.setattr(transfer, "compare_next", counted)
    async with ledger_over("memory") as ledger:
        for file, end in ((long_file(), ImportOutcome.IMPORTED), (again, outcome)):
            reports = [each async for each in ledger.import_lines([file], keep_ids=keep_ids)]
            assert [each.did for each in reports if each.did in ENDS] == [end]
    assert compared == pages


async def test_long_chat_is_planned_drafted_and_freed_in_threads_that_pause_between_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = LONG + 1
    paces: list[list[int]] = []

    def new_pace() -> Callable[[], None]:
        paces.append([])
        return lambda: paces[-1].append(threading.get_ident())

    monkeypatch.setattr(transfer, "Pace", new_pace)
    async with ledger_over("memory") as ledger:
        reports = [each async for each in ledger.import_lines([long_file(lines=lines)])]
    assert ImportOutcome.IMPORTED in {each.did for each in reports}
    planned, drafted, freed = paces
    assert len(planned) >= 5 * LONG
    assert len(drafted) >= 2 * LONG
    assert len(freed) == 2 * LONG
    assert threading.get_ident() not in {*planned, *drafted, *freed}


def test_pace_makes_a_thread_rest_whenever_it_has_worked_for_a_while() -> None:
    times = iter([0.0, WORK / 2, WORK, 5.0, 5.0 + WORK / 2, 5.0 + WORK, 9.0])
    rests: list[float] = []
    pace = Pace(lambda: next(times), rests.append)
    rested = []
    for _ in range(4):
        pace()
        rested.append(len(rests))
    assert rested == [0, 1, 1, 2]
    assert set(rests) == {REST}
