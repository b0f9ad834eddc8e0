"""Clients that enqueue durable work, and the check that none of it is lost, doubled or resumed too often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from random import Random

from turnledger.engine.attempt.interrupted_job import EXHAUSTED, INTERRUPTIONS
from turnledger.errors import (
    ConversationUnavailable,
    LedgerClosed,
    MissingToolResults,
    TurnledgerError,
    TurnNotFound,
    TurnReplayed,
)
from turnledger.ledger import Ledger
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.job import MOST_RESUMES
from turnledger.model.turn import AttemptState, OnFailure
from turnledger.testing.simulation.clients.requests import Follow, RequestSender
from turnledger.testing.simulation.servers import Scene, Work
from turnledger.testing.simulation.world import LEASE_TIME, ClientRequest, ModelFailed, World

REASONS = frozenset({ModelFailed.__name__, MissingToolResults.code, TurnReplayed.code})
"""Why a job may fail before its resumes are exhausted: its model, an input that its place forbids, or that
what it retries was settled."""
EXHAUSTED_BY = INTERRUPTIONS - {LedgerClosed.code} | {EXHAUSTED.code}
"""Why a job without resumes left may fail."""


@dataclass(frozen=True)
class AcknowledgedJob:
    request: ClientRequest
    id: TurnId
    conversation: ConversationId


class WorkClients:
    """Clients of work. With `dies`, the process dies in most executions: first before anything was recorded,
    then soon after a step was."""

    def __init__(
        self, scene: Scene, sender: RequestSender, seed: str, follow: Follow | None, *, dies: bool = False
    ) -> None:
        self._scene = scene
        self._sender = sender
        self._random = Random(seed)
        self._follow = follow
        self._dies = dies

    async def send_beside(self, name: str, token: str) -> None:
        """Enqueue several turns after one that any branch has."""
        turns = await self._sender.read_turns(name, all_branches=True)
        if not turns:
            await self.send(token)
            return
        after = self._random.choice(turns).id
        count = self._random.choice((1, 2, 3))
        places = [(f"{token}|{number}", (name, after)) for number in range(count)]
        await asyncio.gather(*(self.send(each, place) for each, place in places))

    async def send(self, token: str, place: tuple[str, TurnId] | None = None) -> None:
        """Enqueue a turn: sometimes twice at once under one key, sometimes stopped soon after. `place` is a
        conversation, and the turn to follow there."""
        random, servers = self._random, self._scene.servers
        drawn = self._sender.draw(token)
        if place is not None:
            drawn = replace(drawn, conversation=place[0], after=place[1])
        is_late, pace = random.random() < 0.1, min(drawn.pace, LEASE_TIME)
        request = replace(drawn, leaves_call=False, is_late=is_late, pace=pace)
        if request.idempotency_key is not None:
            request = replace(request, idempotency_key=f"job {request.idempotency_key}")
        if self._dies:
            request = replace(
                request,
                tools=(False, False),
                in_parallel=False,
                fails_at=(-1,),
                on_failure=random.choice((OnFailure.KEEP, request.on_failure)),
                dies_at=random.choice(((0, 1), (0, 0, 0, 1), (0, 0, 0, 1))),
                pace=random.choice((0.0, 0.05)),
            )
        self._scene.world.jobs[token] = request
        copies = 2 if request.idempotency_key is not None and random.random() < 0.3 else 1
        await asyncio.gather(*(servers.do(self._enqueue(request)) for _ in range(copies)))
        if random.random() < 0.2:
            await asyncio.sleep(random.choice((0.0, 0.5, LEASE_TIME)))
            await servers.do(self._stop(request), timeout=LEASE_TIME * 8)

    def _enqueue(self, request: ClientRequest) -> Work:
        scene = self._scene

        async def enqueue(ledger: Ledger) -> None:
            options = {name: value for name, value in request.options.items() if name != "on_busy"}
            try:
                chat = await scene.names.open(ledger, request.conversation)
                id = await chat.enqueue(request.input, **options)
            except TurnledgerError:
                return
            scene.world.acknowledged_jobs.append(AcknowledgedJob(request, id, chat.id))
            if self._follow is not None:
                self._follow(chat.id, id)

        return enqueue

    def _stop(self, request: ClientRequest) -> Work:
        world = self._scene.world

        async def stop(ledger: Ledger) -> None:
            for job in [job for job in world.acknowledged_jobs if job.request is request]:
                try:
                    await (await ledger.conversation(job.conversation)).stop(job.id)
                except TurnledgerError:
                    return

        return stop

    async def finish(self, ledger: Ledger) -> None:
        """Wait until all durable work has ended; record what does not."""
        for _ in range(200):
            if not await ledger.jobs():
                return
            await asyncio.sleep(LEASE_TIME)
        self._scene.world.violations.append("durable work does not come to an end")


async def check_work(world: World, ledger: Ledger) -> AsyncIterator[str]:
    """Check that all acknowledged work has ended, by itself or by a stop, and how often it was resumed."""
    for job in world.acknowledged_jobs:
        # A key may have moved on to another conversation before its request was repeated.
        conversation = world.begun_in.get(job.id, job.conversation)
        if conversation in world.deleted:
            continue  # what waited or ran there went with it, even if it was restored
        try:
            status = await (await ledger.conversation(conversation)).status(job.id)
        except ConversationUnavailable:
            continue
        except TurnNotFound:
            yield f"{job.id} was enqueued, and is lost"
            continue
        code = status.failure.code if status.failure is not None else None
        if status.state is not AttemptState.FAILED or code in REASONS:
            continue
        resumes = world.resumes[job.id] - world.left_by_closing[job.id]
        if code not in EXHAUSTED_BY or resumes < MOST_RESUMES:
            yield f"{job.id} was enqueued, and lost by {code} after {resumes} resumes"
    for id, times in (world.resumes - world.left_by_closing).items():
        if times > MOST_RESUMES:
            yield f"{id} was resumed {times} times"
