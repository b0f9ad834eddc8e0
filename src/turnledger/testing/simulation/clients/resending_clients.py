"""Chat-completions clients, which keep their own copy of a chat and resend it each time: whole, trimmed,
edited, or cut after an earlier question."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.resent_request import OnDivergence
from turnledger.model.turn import OnBusy, OnFailure
from turnledger.testing.simulation.clients import actions
from turnledger.testing.simulation.clients.briefing_options import SILENT, Briefing
from turnledger.testing.simulation.clients.requests import RequestSender
from turnledger.testing.simulation.clients.transcript import (
    Message,
    SentHistory,
    answer_messages,
    messages_of,
)
from turnledger.testing.simulation.servers import Scene
from turnledger.testing.simulation.world import RequestKind

INSTRUCTIONS = "be brief", "be kind"


class ResendingClients:
    def __init__(self, scene: Scene, sender: RequestSender) -> None:
        self._scene = scene
        self._random = scene.random
        self._sender = sender
        self._copies: dict[tuple[int, str], list[Message]] = {}

    async def resend(self, client: int, name: str, token: str) -> None:
        """Continue the client's copy, sometimes from two tabs at once; remember the first answer."""
        copy = self._copies.get((client, name))
        if copy is None or self._random.random() < 0.15:
            copy = [message for turn in await self._sender.read_turns(name) for message in messages_of(turn)]
        tokens = [token, f"b{token}"] if self._random.random() < 0.4 else [token]
        tabs = [self._draw(copy, each) for each in tokens]
        answering = (self._send(tab, name, each) for tab, each in zip(tabs, tokens, strict=True))
        answers = await asyncio.gather(*answering)
        first = tabs[0]
        if answers[0] is not None:
            self._copies[client, name] = [*first.meant, *answers[0]]
        elif self._random.random() < 0.5:
            # The question stays in the copy without an answer.
            self._copies[client, name] = list(first.meant)
        if not first.is_whole:
            # The client does not know the turns before.
            self._copies.pop((client, name), None)

    async def ask_again(self, name: str, token: str) -> None:
        """Ask the only question of a fork again, behind a failed turn whose effects wait. That fails, too,
        and is retried when those are settled: its question is not the only one then."""
        scene, sender = self._scene, self._sender
        turns = await sender.read_turns(name)
        question = next((message for turn in turns[:1] for message in messages_of(turn)), None)
        if question is None or question["role"] != "user":
            await sender.send_and_answer(token)
            return
        await scene.servers.do(actions.fork(scene, name, turns[0].id))
        acts = replace(
            sender.draw(token),
            conversation=next(reversed(scene.names.forks), name),
            by_key=False,
            tools=(False,),
            fails_at=(1,),
            tool_breaks=-1,
            on_busy=OnBusy.QUEUE,
            on_failure=OnFailure.SETTLE,
            briefing=SILENT,
        )
        again = SentHistory(instructions=(), meant=(question,), cut=0, is_whole=False, old=0)
        await sender.send_once(replace(acts, token=f"{token}-", idempotency_key=None))
        retried = replace(
            acts, kind=RequestKind.RESEND, resent=again, fails_at=(1, -1), idempotency_key=f"key {token}"
        )
        await sender.send_once(retried)
        await sender.send_once(retried)

    async def _send(self, resent: SentHistory, name: str, token: str) -> list[Message] | None:
        instructions = str(resent.instructions[0]["content"]) if resent.instructions else None
        drawn = self._sender.draw(token)
        if self._random.random() < 0.7:
            # Most succeed, so that histories grow.
            drawn = replace(drawn, fails_at=(-1,), tool_breaks=-1, on_busy=OnBusy.QUEUE)
        request = replace(
            drawn,
            kind=RequestKind.RESEND,
            conversation=name,
            by_key=False,
            resent=resent,
            briefing=Briefing(instructions=instructions),
        )
        turn = await self._sender.send(request)
        return answer_messages(turn) if turn is not None else None

    def _draw(self, copy: list[Message], token: str) -> SentHistory:
        """Draw the history that the client means and the part that it sends."""
        random = self._random
        questions = [at for at, message in enumerate(copy) if message["role"] == "user"]
        answers = [at for at, message in enumerate(copy) if message["role"] == "assistant"]
        meant, old = [*copy, *self._new(copy, token)], len(copy)
        match random.choice((*["on"] * 5, "edit", "edit an answer", "again")):
            case "edit" if questions:
                old = random.choice(questions)
                meant = [*copy[:old], {"role": "user", "content": token}]
            case "edit an answer" if answers:
                old = random.choice(answers)
                other = {"role": "assistant", "content": f"rather {token}"}
                meant = [*copy[:old], other, {"role": "user", "content": token}]
            case "again" if questions:
                old = random.choice(questions)
                meant = copy[: old + 1]
        has_answer = any(message["role"] == "assistant" for message in meant)
        cut = random.randrange(old) if old and random.random() < 0.4 else 0
        sent = SentMessages.FULL if not cut and random.random() < 0.15 else None
        system = {"role": "system", "content": random.choice(INSTRUCTIONS)}
        return SentHistory(
            instructions=(system,) if random.random() < 0.3 else (),
            meant=tuple(meant),
            cut=cut,
            is_whole=has_answer or sent is SentMessages.FULL,
            old=old,
            sent=sent,
            on_divergence=OnDivergence.REJECT if random.random() < 0.15 else OnDivergence.BRANCH,
            note=self._note(len(meant) - cut, token),
        )

    def _note(self, sent: int, token: str) -> tuple[int, Message] | None:
        """Draw a note for the model, from separate dice so that other draws do not change."""
        dice = Random(f"{token} of {sent}")
        if sent < 2 or dice.random() < 0.7:
            return None
        return dice.randrange(1, sent), {"role": "developer", "content": f"note {token}"}

    def _new(self, copy: list[Message], token: str) -> list[Message]:
        """Draw a question, or the results of the calls of the last answer."""
        calls = copy[-1].get("tool_calls", ()) if copy else ()
        if not calls or self._random.random() < 0.3:
            return [{"role": "user", "content": token}]
        return [{"role": "tool", "tool_call_id": call["id"], "content": token} for call in calls]
