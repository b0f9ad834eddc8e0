"""Requests that run the model, and clients that send them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from turnledger.chat import Chat
from turnledger.engine.turn.block import TurnBlock, append_items
from turnledger.engine.turn.validation import append_request, target_of, turn_request
from turnledger.errors import Superseded, TurnledgerError
from turnledger.ledger import OWNER, Ledger
from turnledger.model.event import Event
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import OnBusy, Turn, TurnKind
from turnledger.testing.simulation.clients import actions
from turnledger.testing.simulation.clients.briefing_options import Briefing
from turnledger.testing.simulation.oracle.lapses import LONG_TURN
from turnledger.testing.simulation.servers import Scene, Work
from turnledger.testing.simulation.world import (
    LEASE_TIME,
    ClientRequest,
    ModelFailed,
    RequestKind,
)

Follow: TypeAlias = Callable[[ConversationId, TurnId], None]


class RequestSender:
    """Draws and sends requests. `acts` makes effects and failures likelier, `diverges` makes clients edit,
    `briefs` adds instructions and context, `lasts` makes some models very slow; `follow` receives each turn
    before it runs."""

    def __init__(
        self,
        scene: Scene,
        *,
        acts: bool,
        diverges: bool,
        briefs: bool = False,
        lasts: bool = False,
        follow: Follow | None = None,
    ) -> None:
        self.count = 0
        self._scene = scene
        self._random = scene.random
        self._world = scene.world
        self._acts = acts
        self._diverges = diverges
        self._briefs = briefs
        self._lasts = lasts
        self._follow = follow

    def draw(self, token: str) -> ClientRequest:
        request = ClientRequest.draw(self._random, token, self._scene.names.all, acts=self._acts)
        if self._lasts and self._random.random() < 0.4:
            request = replace(request, pace=LONG_TURN, is_interaction=self._random.random() < 0.4)
        return replace(request, briefing=Briefing.draw(self._random, token)) if self._briefs else request

    async def send_and_answer(self, token: str) -> None:
        """Send a request; if its model calls a client tool, send the result, sometimes twice."""
        blank = self._random.random() < 0.05
        request = self.draw(" " if blank else token)
        await self.send(request)
        if not request.leaves_call:
            return
        answers = [
            replace(self.draw(f"{token}!{count}"), answers_call=True, conversation=request.conversation)
            for count in range(self._random.choice((0, 1, 2)))
        ]
        await asyncio.gather(*(self.send(answer) for answer in answers))

    async def append(self, token: str) -> None:
        """Append a turn from elsewhere; sometimes it answers a call, of which there may be none."""
        answers = self._random.random() < 0.2
        await self.send(replace(self.draw(token), kind=RequestKind.APPEND, answers_call=answers))

    async def diverge(self, token: str) -> None:
        """Edit or regenerate, sometimes with an idempotency_key that is reused for another place."""
        request = await self._diverted(self.draw(token))
        requests = [request]
        if request.is_late:
            # Another turn runs on the same head as soon as this one is judged dead.
            other = replace(self.draw(f"{token}+"), conversation=request.conversation)
            requests.append(replace(other, on_busy=OnBusy.QUEUE, fails_at=(-1,), pace=0.0, is_late=False))
        await asyncio.gather(*(self.send(each) for each in requests))
        if request.kind is not RequestKind.TURN and request.idempotency_key and self._random.random() < 0.2:
            other = await self._diverted(request)
            await self.send(replace(request, instead_of=other.instead_of))

    async def _diverted(self, request: ClientRequest) -> ClientRequest:
        """Return the request in the place of a turn its client sees, if any."""
        turns = [turn.id for turn in await self.read_turns(request.conversation)]
        if not turns:
            return request
        if self._random.random() < 0.4:
            # The repeated input may be results, whatever was drawn.
            turn = self._random.choice((None, *turns))
            return replace(request, kind=RequestKind.REGENERATE, instead_of=turn, answers_call=False)
        answers = self._random.random() < 0.1
        return replace(
            request, kind=RequestKind.EDIT, instead_of=self._random.choice(turns), answers_call=answers
        )

    async def run_in_parallel(self, name: str, token: str, *, purge: bool) -> None:
        """Run several turns at once after one that any branch has, then perhaps one after the first. Rarely
        the chat is deleted meanwhile."""
        turns = await self.read_turns(name, all_branches=True)
        if not turns:
            await self.send_and_answer(token)
            return
        after = self._random.choice(turns).id
        requests = [
            self._beside(name, f"{token}|{number}", after) for number in range(self._random.choice((1, 2, 3)))
        ]
        deletion = self._delete_soon(name, purge=purge) if self._random.random() < 0.05 else asyncio.sleep(0)
        *answers, _ = await asyncio.gather(*map(self.send, requests), deletion)
        first = next((answer for answer in answers if answer is not None), None)
        if first is not None and self._random.random() < 0.5:
            await self.send(self._beside(name, f"{token}||", first.id))

    async def _delete_soon(self, name: str, *, purge: bool) -> None:
        await asyncio.sleep(self._random.choice((0.01, 0.1, 1.0)))
        await self._scene.servers.do(actions.delete(self._scene, name, purge=purge))

    def _beside(self, name: str, token: str, after: TurnId) -> ClientRequest:
        answers = self._random.random() < 0.1
        request = replace(self.draw(token), conversation=name, after=after, on_busy=OnBusy.QUEUE)
        return replace(request, answers_call=answers)

    async def fork_or_send(self, name: str, token: str) -> None:
        """Fork at a turn the client sees; send a request if there is none."""
        turns = await self.read_turns(name)
        if not turns:
            await self.send_and_answer(token)
            return
        # Turns settled behind a turn, or waiting to be settled behind the last one, must be copied.
        settled = [turn.parent for turn in turns if turn.kind is TurnKind.SETTLED]
        places = [None, *(turn.id for turn in turns), *settled, *settled, turns[-1].id]
        scene, keys = self._scene, self._scene.names.keys_of_forks
        if not keys:
            await scene.servers.do(actions.fork(scene, name, self._random.choice(places)))
            return
        # Twice at once under one conversation_key: one of them must be refused.
        key = self._random.choice(keys)
        forks = [actions.fork(scene, name, self._random.choice(places), key) for _ in range(2)]
        await asyncio.gather(*map(scene.servers.do, forks))

    async def undo_once(self, name: str, token: str) -> None:
        """Undo a turn under one idempotency_key: twice at once, and sometimes again."""
        do, undo = self._scene.servers.do, actions.undo(self._scene, name, f"undo {token}")
        await asyncio.gather(do(undo), do(undo))
        if self._random.random() < 0.5:
            await do(undo)

    async def send_and_stop(self, token: str) -> None:
        """Start a model that never ends, and stop it from any server; the stop must arrive in time."""
        request = replace(self.draw(token), hangs=True, on_busy=OnBusy.QUEUE)
        if self._diverges:
            request = await self._diverted(request)
        servers = self._scene.servers
        task = asyncio.ensure_future(servers.do(self._handle(request)))
        for _ in range(40):
            await asyncio.wait((task,), timeout=LEASE_TIME)
            if task.done():
                return
            stopping = actions.stop(self._scene, request.conversation, any_turn=False)
            await servers.do(stopping, timeout=LEASE_TIME * 8)
        self._world.violations.append(f"{token} could not be stopped")
        task.cancel()

    async def stop_late(self, token: str) -> None:
        """Run a turn in a process that pauses for longer than its lease. Stop it meanwhile, or let others
        wait, the first of them to interrupt it. Then read what was kept; the power may fail after that."""
        request = replace(self.draw(token), is_late=True, on_busy=OnBusy.QUEUE, fails_at=(-1,), pace=0.0)
        request = await self._diverted(request)
        late = asyncio.ensure_future(self.send_once(request))
        await asyncio.sleep(self._random.choice((0.1, 1.0)))
        servers = self._scene.servers
        if self._random.random() < 0.5:
            stopping = actions.stop(self._scene, request.conversation, any_turn=False)
            await servers.do(stopping, timeout=LEASE_TIME * 2)
        else:
            others = [
                replace(self.draw(f"{token}<{number}"), conversation=request.conversation, on_busy=on_busy)
                for number, on_busy in enumerate((OnBusy.INTERRUPT, OnBusy.QUEUE, OnBusy.QUEUE))
            ]
            await asyncio.gather(*map(self.send_once, others))
        await self.read_turns(request.conversation)
        power = servers.medium.power
        if power is not None and power.should_fail(0.5):
            servers.lose_power()
        await late

    async def send_once(self, request: ClientRequest) -> None:
        self.count += 1
        await self._scene.servers.do(self._handle(request))

    async def read_turns(self, name: str, *, all_branches: bool = False) -> list[Turn]:
        """Read the turns that a client sees, or those of all branches; none if no server answers."""
        turns: list[Turn] = []

        async def see(chat: Chat) -> None:
            for each in await chat.branches() if all_branches else ():
                turns.extend(await chat.turns(branch=each.branch.id))
            turns.extend(await chat.turns())
            self._world.shown_turns.update({(chat.id, turn.id): turn.body for turn in turns})

        await self._scene.servers.do(actions.on_chat(self._scene, name, see))
        return turns

    async def send(self, request: ClientRequest) -> Turn | None:
        """Send a request as impatient clients do: twice at once, again after a failure, or given up."""
        self.count += 1
        do = self._scene.servers.do
        copies = 2 if request.idempotency_key and self._random.random() < 0.3 else 1
        tries = self._random.choice((1, 3, 4)) if request.idempotency_key else 1
        answer: Turn | None = None
        for _ in range(tries):
            timeout = self._random.choice((None, None, None, 0.01, 1.0, 15.0))
            await asyncio.gather(*(do(self._handle(request), timeout) for _ in range(copies)))
            answer = next(
                (view.answer for view in self._world.client_views if view.request is request and view.answer),
                None,
            )
            if answer is not None and self._random.random() < 0.7:
                break
        return answer

    def _handle(self, request: ClientRequest) -> Work:
        world = self._world

        async def handle(ledger: Ledger) -> None:
            events: list[Event] = []
            try:
                if request.kind is RequestKind.APPEND:
                    turn = await self._append(ledger, request)
                else:
                    turn = await self._run(await self._block(ledger, request, events), request)
            except (TurnledgerError, ModelFailed) as problem:
                world.note_failure(request, problem)
                if isinstance(problem, Superseded) and not world.was_taken_over(request):
                    world.violations.append(f"{request.token} lost its lane without a takeover")
            else:
                world.note_answer(request, turn)
                if events:
                    world.events[turn.id] = events

        return handle

    async def _block(self, ledger: Ledger, request: ClientRequest, events: list[Event]) -> TurnBlock:
        names, name = self._scene.names, request.conversation
        if request.by_key and request.kind is RequestKind.TURN and name in names.keys:
            reset = names.details.get("reset")
            target = target_of(ledger._process, None, name, OWNER, reset=reset)
            acquire = turn_request(ledger._process, target, None, request.input, **request.options)
            return TurnBlock(ledger._process, acquire, events.append)
        generation = names.generation(name)
        chat = await names.open(ledger, name)
        if generation is not None and generation == names.generation(name):
            self._world.opened.setdefault((name, generation), set()).add(chat.id)
        if request.resent is not None:
            return chat.resent(
                request.resent.messages,
                sent=request.resent.sent,
                on_divergence=request.resent.on_divergence,
                on_event=events.append,
                **request.options,
            )
        if request.kind is RequestKind.REGENERATE:
            return chat.regenerate(request.instead_of, on_event=events.append, **request.options)
        if request.kind is RequestKind.EDIT and request.instead_of is not None:
            return chat.edit(request.instead_of, request.input, on_event=events.append, **request.options)
        return chat.turn(request.input, on_event=events.append, **request.options)

    async def _leave(self, block: TurnBlock, request: ClientRequest) -> None:
        await asyncio.sleep(request.leaves_after or 0)
        self._world.left.add(block.id)
        block.note_unread()

    async def _append(self, ledger: Ledger, request: ClientRequest) -> Turn:
        chat = await self._scene.names.open(ledger, request.conversation)
        asked = append_request(
            ledger._process,
            chat._target,
            None,
            request.whole_turn,
            on_busy=request.on_busy,
            idempotency_key=request.idempotency_key,
            details=request.policies["details"],
        )
        self._world.requests[asked.begin.attempt] = request
        return await append_items(ledger._process, asked)

    async def _run(self, block: TurnBlock, request: ClientRequest) -> Turn:
        self._world.requests[block.id] = request
        conversation = block._request.begin.target.id
        leaves = request.leaves_after is not None
        if self._follow is not None and conversation is not None and not leaves:
            self._follow(conversation, block.id)
        leaving = asyncio.create_task(self._leave(block, request)) if leaves else None
        try:
            return await self._world.run_block(block, request, self._random)
        finally:
            if leaving is not None:
                leaving.cancel()
