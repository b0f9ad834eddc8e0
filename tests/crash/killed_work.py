"""kill -9 of processes that run durable work: `python -m tests.crash.killed_work --kills 100 --seed 7`.

Each process enqueues keyed jobs in the same chats, and runs those of all. It is killed at moments chosen by
the seed and restarted; some jobs also kill it from within. At the end all acknowledged work has ended, once
and in its order, after at most three resumes, and readers have received every event once.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Lock

import apsw

from tests.compat.responses import follow_officially
from tests.crash.processes import Worker
from tests.crash.promises import check_promises, recovered
from turnledger import ItemDone, Ledger, Limits, TextDelta, TurnFinished, TurnResumed
from turnledger.engine.attempt.interrupted_job import EXHAUSTED
from turnledger.model import codec
from turnledger.model.event import Event
from turnledger.model.ids import TurnId
from turnledger.model.item import OUTCOME_UNKNOWN, Item, checked_items
from turnledger.model.job import MOST_RESUMES
from turnledger.types import AttemptState

MOMENTS = ("opened", "enqueued", "begun", "acted", "answered")
FEWEST_JOBS = 12
"""Of each process: among as many are some that kill it in every way."""
LEASE_TIME = 1.2
COUNTED = ("completed", "resumed", "exhausted", "calls of unknown outcome")
PATIENCE = 60.0
"""Seconds in which all work has to end after the last kill."""

# Written in the transactions that they report, so that no kill separates the two.
AUDIT = """
CREATE TABLE audit (place INTEGER PRIMARY KEY, what TEXT, id BLOB, branch BLOB, resumes INTEGER) STRICT;
CREATE TRIGGER queued AFTER INSERT ON ticket BEGIN
    INSERT INTO audit (what, id, branch) VALUES ('queued', NEW.attempt, NEW.branch);
END;
CREATE TRIGGER begun AFTER INSERT ON attempt BEGIN
    INSERT INTO audit (what, id, branch) VALUES ('begun', NEW.id, NEW.branch);
END;
CREATE TRIGGER ended AFTER DELETE ON job BEGIN
    INSERT INTO audit (what, id, resumes) VALUES ('ended', OLD.id, OLD.resumes);
END;
"""


@dataclass
class Job:
    """An acknowledged job, and the events that its reader has received."""

    token: str
    chat: str
    id: TurnId
    received: list[Event] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return bool(self.received) and isinstance(self.received[-1], TurnFinished)


@dataclass
class Slot:
    """One of the processes, through all its lives."""

    dice: Random
    first: int = 0
    """The job that its next life begins with: the first one that was not acknowledged."""
    lives: int = 0
    kills: int = 0
    """How often it was killed from outside."""
    enqueues: bool = True
    worker: Worker | None = None


class WorkStorm:
    """Kills on one folder with one seed, then the checks."""

    def __init__(self, folder: Path, seed: int, processes: int, broken: str = "") -> None:
        self._folder = folder
        self._seed = seed
        self._broken = broken
        self._slots = [Slot(Random(f"{seed} {number}")) for number in range(processes)]
        self._lock = Lock()
        self._is_over = False
        self._acknowledged: asyncio.Queue[Job | None] = asyncio.Queue()
        self._all_enqueued = asyncio.Event()
        self._runs: Counter[str] = Counter()
        self.jobs: list[Job] = []
        self.counts: Counter[str] = Counter()

    @property
    def summary(self) -> str:
        kills, lives = (sum(getattr(slot, what) for slot in self._slots) for what in ("kills", "lives"))
        counts = ", ".join(f"{self.counts[what]} {what}" for what in COUNTED)
        return (
            f"{kills} kills of {len(self._slots)} processes, and {lives - kills - len(self._slots)} by their "
            f"jobs: {len(self.jobs)} jobs acknowledged, {counts}. None was lost or ran twice."
        )

    async def run(self, kills: int) -> None:
        """Raise AssertionError for a broken promise."""
        await (await self._open()).close()
        with apsw.Connection(str(self._folder / "chats.db")) as connection:
            connection.execute(AUDIT)
        async with asyncio.TaskGroup() as tasks:
            for slot in self._slots:
                tasks.create_task(asyncio.to_thread(self._drive, slot, kills, asyncio.get_running_loop()))
            try:
                if len(self._slots) == 1:  # otherwise a reader would take over from the dead
                    await self._all_enqueued.wait()
                async with await self._open() as ledger:
                    await self._read_all(ledger)
            finally:
                self._end()
        await self._check()

    async def _open(self) -> Ledger:
        limits = Limits(lease_time=LEASE_TIME)
        return await Ledger.open(f"sqlite:///{self._folder / 'chats.db'}", limits=limits)

    def _drive(self, slot: Slot, kills: int, loop: asyncio.AbstractEventLoop) -> None:
        """Kill a process and start it again, then start it whenever a job kills it, until all have ended."""
        each = -(-kills // len(self._slots))
        while (worker := self._start(slot)) is not None:
            moment, left = slot.dice.choice(MOMENTS), slot.dice.randint(1, 12)
            if moment == "opened":
                left = 1
            for line in worker.lines():
                word, *rest = line.split()
                if word == "enqueued":
                    slot.first += 1
                    token, chat, id = rest
                    loop.call_soon_threadsafe(self._acknowledged.put_nowait, Job(token, chat, TurnId(id)))
                left -= word == moment
                if left == 0 and slot.enqueues:
                    slot.kills += 1
                    worker.process.kill()
            assert worker.end() == -signal.SIGKILL, worker.errors.read_text()
            slot.enqueues = slot.kills < each or slot.first < FEWEST_JOBS
            with self._lock:
                self._runs.update(line.split()[1] for line in worker.output if line.startswith("begun"))
                if not any(other.enqueues for other in self._slots):
                    loop.call_soon_threadsafe(self._note_all_enqueued)

    def _note_all_enqueued(self) -> None:
        self._all_enqueued.set()
        self._acknowledged.put_nowait(None)

    def _start(self, slot: Slot) -> Worker | None:
        with self._lock:
            if self._is_over:
                return None
            number, first = self._slots.index(slot), slot.first if slot.enqueues else ""
            arguments = (self._folder, LEASE_TIME, self._seed, number, first)
            slot.worker = Worker(
                self._folder / f"errors-{number}-{slot.lives}", f"work:{self._broken}", *map(str, arguments)
            )
            slot.lives += 1
            return slot.worker

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            for slot in self._slots:
                if slot.worker is not None:
                    slot.worker.process.kill()

    async def _read_all(self, ledger: Ledger) -> None:
        """Read each acknowledged job until its end."""
        async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as readers:
            while (job := await self._acknowledged.get()) is not None:
                self.jobs.append(job)
                readers.create_task(self._read(job, ledger))
            deadline.reschedule(asyncio.get_running_loop().time() + PATIENCE)
            for left in await ledger.jobs():  # also those whose acknowledgement was lost
                await (await ledger.conversation(left.conversation)).outcome(left.id)

    async def _read(self, job: Job, ledger: Ledger) -> None:
        """Read its events, and reconnect again and again."""
        chat, dice = await ledger.conversation(job.chat), Random(job.token)
        while not job.is_over:
            left = dice.choice((1, 3, 1_000))
            last = job.received[-1].number if job.received else 0
            async with aclosing(chat.events(job.id, after=last)) as events:  # type: ignore[type-var]
                async for event in events:
                    job.received.append(event)
                    left -= 1
                    if left == 0:
                        break

    async def _check(self) -> None:
        resumes = self._check_audit()
        async with await self._open() as ledger:
            for job in self.jobs:
                await self._check_job(job, resumes[job.id], ledger)
        check_promises(await recovered(self._folder), (), self._folder / "effects")
        async with await self._open() as ledger:
            assert await ledger.check(at_rest=True) == []
        assert all(self.counts[what] for what in COUNTED), f"this shows nothing: {self.counts}"

    def _check_audit(self) -> dict[TurnId, int]:
        """Check that each job was begun and ended once, in the order of its queue; return its resumes."""
        with apsw.Connection(str(self._folder / "chats.db")) as connection:
            rows = connection.execute("SELECT what, id, branch, resumes FROM audit ORDER BY place").fetchall()
        queued, begun = (
            sorted([(branch, place, id) for place, (what, id, branch, _) in enumerate(rows) if what == word])
            for word in ("queued", "begun")
        )
        assert [row[::2] for row in begun] == [row[::2] for row in queued]
        ended = {TurnId.of_bytes(id): resumes for what, id, _, resumes in rows if what == "ended"}
        assert len(ended) == len(queued) == sum(row[0] == "ended" for row in rows)
        assert max(ended.values()) <= MOST_RESUMES
        return ended

    async def _check_job(self, job: Job, resumes: int, ledger: Ledger) -> None:
        """Check how it ended, and that its reader received its events once, as they are stored."""
        chat = await ledger.conversation(job.chat)
        status = await chat.status(job.id)
        if status.state is AttemptState.COMPLETED:
            self.counts["completed"] += 1
        else:
            assert status.failure == EXHAUSTED, f"{job.id}: {status}"
            assert resumes == MOST_RESUMES
            self.counts["exhausted"] += 1
        self.counts["resumed"] += resumes > 0
        assert self._runs[job.token] <= resumes + 1, f"{job.id} ran {self._runs[job.token]} times"
        assert [event.number for event in job.received] == list(range(1, len(job.received) + 1))
        stored = [codec.encode(event) async for event in chat.events(job.id)]
        assert [codec.encode(event) for event in job.received] == stored
        assert sum(isinstance(event, TurnResumed) for event in job.received) <= resumes
        items = items_of(job.received)
        if status.turn is not None and status.state is AttemptState.COMPLETED:
            assert items == list(status.turn.output)
            follow_officially(status.turn, job.received)
        self.counts["calls of unknown outcome"] += sum(
            item.fields.get("output") == OUTCOME_UNKNOWN for item in items
        )


def items_of(events: Sequence[Event]) -> list[Item]:
    """Return the finished items. A message follows the text that it is made of."""
    items, text = [], ""
    for event in events:
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, TurnResumed):
            text = ""
        elif isinstance(event, ItemDone):
            (item,) = checked_items((event.item,))
            items.append(item)
            if item.type == "message":
                assert text in ("", item.text)
                text = ""
    return items


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.killed_work", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broken", default="", help="run a broken engine of tests.simulation.broken.work")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        storm = WorkStorm(Path(folder), given.seed, given.processes, given.broken)
        asyncio.run(storm.run(given.kills))
    print(storm.summary)


if __name__ == "__main__":
    main()
