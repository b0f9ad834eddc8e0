"""A chat client that resends its own message list: after each step the ledger holds that list once.

Only the beginning may be longer in the ledger, where the client trimmed its list.
"""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.model.item import NOT_ANSWERED
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Tool

Message = dict[str, Any]
DONE_HERE = "done here"


def tokens(message: Message) -> list[str]:
    """Return the texts and call names of a message; all are different in a test."""
    content = message.get("content") or ""
    text = "".join(part["text"] for part in content) if isinstance(content, list) else content
    calls = [each["function"]["name"] for each in message.get("tool_calls") or ()]
    return [each for each in (text.strip(), *calls) if each not in ("", NOT_ANSWERED, DONE_HERE, "here")]


def tokens_of(turn: Turn) -> list[str]:
    return [token for message in messages_of(turn.items) for token in tokens(message)]


class Client:
    """Its list, and what it knows of where that differs from the ledger's."""

    def __init__(self, chat: Chat, pick: Random) -> None:
        self.chat = chat
        self.pick = pick
        self.mine: list[Message] = []
        self.trimmed: list[str] = []
        self.unfinished: set[str] = set()
        self.hidden: set[str] = set()
        self._numbers = count()

    def fresh(self, word: str) -> str:
        return f"{word}{next(self._numbers)}, and that is all."

    def spelt(self, message: Message) -> Message:
        """The message as this client happens to write it this time."""
        sent = dict(message)
        if "tool_calls" in sent:
            call = sent["tool_calls"][0]
            body = {**call["function"], "arguments": self.pick.choice(["{}", "{ }", '{"a":1}'][:2])}
            return {
                **sent,
                "content": self.pick.choice([None, ""]),
                "tool_calls": [{**call, "function": body}],
            }
        how = self.pick.randrange(4)
        if how == 1:
            sent["content"] = f" {sent['content']}\n"
        elif how == 2 and sent["role"] != "tool":
            sent["content"] = [{"type": "text", "text": sent["content"]}]
        elif how == 3 and sent["role"] == "assistant":
            sent |= {"refusal": None, "tool_calls": None, "name": None}
        return sent

    def system(self) -> list[Message]:
        return self.pick.choice([[], [{"role": "system", "content": self.fresh("Today is ")}]])

    async def send(self, messages: list[Message], *script: Step, **options: Any) -> None:
        body = [*self.system(), *map(self.spelt, messages)]
        if self.chat_has_turns and not any(each["role"] == "assistant" for each in messages):
            options.setdefault("sent", "full")
        if options.get("sent") == "full":
            self.trimmed = []
        await self.run(body, script, **options)

    chat_has_turns = False

    async def run(self, body: list[Message], script: tuple[Step, ...], **options: Any) -> None:
        async with self.chat.resent(body, **options) as turn:
            await ScriptedModel(script)(turn)

    async def exchange(self, messages: list[Message], **options: Any) -> None:
        """Send them, have them answered in some way, and take over the answer."""
        self.mine = messages
        if self.pick.randrange(5) == 0:
            name = f"look_for_another_number_{next(self._numbers)}"
            await self.send(messages, Ask(name, call_id=name), **options)
            function = {"name": name, "arguments": "{}"}
            call = {"id": name, "type": "function", "function": function}
            self.mine = [*messages, {"role": "assistant", "content": None, "tool_calls": [call]}]
            answer = {"role": "tool", "tool_call_id": name, "content": self.fresh("found")}
            if self.pick.randrange(3):
                self.mine.append(answer)
            else:
                self.mine.append(self.question())
            messages, options = self.mine, {}
        text = self.fresh("answer")
        here = [Tool("here", result=DONE_HERE)] if self.pick.randrange(4) == 0 else []
        await self.send(messages, *here, text, **options)
        self.mine = [*messages, {"role": "assistant", "content": text}]

    def question(self) -> Message:
        return {"role": "user", "content": self.fresh("question")}

    # What clients do.

    async def next(self) -> None:
        options = {} if any(each["role"] == "assistant" for each in self.mine) else {"sent": None}
        await self.exchange([*self.mine, self.question()], **options)

    async def regenerate(self) -> None:
        places = [
            place
            for place, each in enumerate(self.mine)
            if each["role"] == "user" and self._is_answered(place) and self._can_end_at(place)
        ]
        if places:
            place = self.pick.choice(places)
            self.unfinished -= set(tokens(self.mine[place]))
            await self.exchange(self.mine[: place + 1])

    async def continue_answer(self) -> None:
        """Have an answer continued, or begin one anew."""
        places = [
            place
            for place, each in enumerate(self.mine)
            if place and each["role"] == "assistant" and each["content"]
            if self.mine[place - 1]["role"] == "user" and self._can_end_at(place - 1)
        ]
        if not places:
            return
        place = self.pick.choice(places)
        before, begun = self.mine[:place], self.pick.choice([self.mine[place]["content"], self.fresh("so")])
        more = self.fresh(" and more")
        options: dict[str, Any] = {}
        if not any(each["role"] == "assistant" for each in before):
            options, self.trimmed = {"sent": "full"}, []
        self.unfinished -= set(tokens(before[-1]))
        answer = {"role": "assistant", "content": begun}
        await self.run([*self.system(), *map(self.spelt, before), answer], (more,), **options)
        self.mine = [*before, {"role": "assistant", "content": begun + more}]

    def _is_answered(self, place: int) -> bool:
        return place + 1 < len(self.mine) and self.mine[place + 1]["role"] == "assistant"

    def _can_end_at(self, place: int) -> bool:
        """Results of calls that are not there cannot be the beginning of a whole history."""
        return self.mine[0]["role"] != "tool" or any(
            each["role"] == "assistant" for each in self.mine[:place]
        )

    async def edit(self) -> None:
        places = [
            place
            for place, each in enumerate(self.mine)
            if each["role"] == "user" and self._can_end_at(place)
        ]
        if places:
            await self.exchange([*self.mine[: self.pick.choice(places)], self.question()])

    async def edit_answer(self) -> None:
        # What the first answer of a trimmed copy was, if it is edited, an interrupted turn may leave open.
        places = [
            place
            for place, each in enumerate(self.mine)
            if each["role"] == "assistant" and each["content"] and (place or not self.unfinished)
        ]
        if places:
            place = self.pick.choice(places)
            self.mine[place] = {"role": "assistant", "content": self.fresh("better")}
            await self.next()

    async def edit_in_place(self) -> None:
        """Edit a question, keep what follows it, and maybe edit a later one, too."""
        places = [place for place, each in enumerate(self.mine) if each["role"] == "user"]
        if places and self._has_answer():
            place = self.pick.choice(places)
            self.mine[place] = self.question()
            later = [each for each in places if each > place]
            if later and self.pick.randrange(2):
                end = self.pick.choice(later)
                if any(each["role"] == "assistant" for each in self.mine[:end]):
                    self.mine = self.mine[:end]
            await self.next()

    async def bring_along(self) -> None:
        """Add exchanges that the ledger has never seen, and send."""
        for _ in range(self.pick.randrange(1, 3)):
            self.mine += [self.question(), {"role": "assistant", "content": self.fresh("elsewhere")}]
        await self.next()

    async def hide(self) -> None:
        """Somebody hides an item. This client shows what the ledger shows, or still has its own copy."""
        turns = await self.chat.turns(limit=1_000)
        turn = self.pick.choice(turns) if turns else None
        if turn is None or turn.kind is not TurnKind.COMPLETED:
            return
        before = await self.visible()
        await self.chat.flag(turn.id, self.pick.randrange(len(turn.items)), to_user=False)
        gone = before - await self.visible()
        left = [each for each in self.mine if not gone & {*tokens(each), each.get("tool_call_id")}]
        self.hidden |= gone
        if self.pick.randrange(3):
            self.mine = left
        if self._has_answer():
            await self.next()

    async def visible(self) -> set[str]:
        return {token for each in messages_of(await self.chat.history()) for token in tokens(each)}

    def _has_answer(self) -> bool:
        return any(each["role"] == "assistant" for each in self.mine)

    async def delete(self) -> None:
        places = [
            place
            for place, each in enumerate(self.mine)
            if each["role"] == "user" and self._is_answered(place) and self.mine[place + 1]["content"]
        ]
        if places:
            place = self.pick.choice(places)
            if not any(each["role"] == "assistant" for each in self.mine[:place]):
                self._trim(place + 2)  # a client that trims looks the same
            else:
                del self.mine[place : place + 2]
            await self.next()

    async def delete_one(self) -> None:
        """Delete a question or an answer, and not the other."""
        places = [place for place, each in enumerate(self.mine) if each["role"] != "tool" and each["content"]]
        place = self.pick.choice(places) if places else 0
        roles = [each["role"] for each in self.mine]
        # The first of two answers in a row looks like both, cut short.
        if "assistant" in roles[:place] and roles[place - 1 : place + 1] != ["assistant", "assistant"]:
            del self.mine[place]
            await self.next()

    async def trim(self) -> None:
        if self.mine:
            self._trim(self.pick.randrange(len(self.mine)))
            await self.next()

    def _trim(self, length: int) -> None:
        gone = [token for each in self.mine[:length] for token in tokens(each)]
        self.trimmed += [token for token in gone if token not in self.unfinished]
        self.mine = self.mine[length:]

    async def fail_and_retry(self) -> None:
        question, text = self.question(), self.fresh("answer")
        body = [*self.system(), *map(self.spelt, [*self.mine, question])]
        script: tuple[Step, ...] = (Tool("here", result=DONE_HERE), text)
        key = self.pick.choice([None, self.fresh("key")])
        for steps in ((*script, RuntimeError("broken")), script):
            try:
                await self.run(body, steps, idempotency_key=key)
            except RuntimeError:
                continue
        self.mine = [*self.mine, question, {"role": "assistant", "content": text}]

    async def fail_and_move_on(self) -> None:
        """The effects of its tools are settled, and this client never receives them."""
        lost = self.question()
        try:
            await self.send([*self.mine, lost], Tool("here", result=DONE_HERE), RuntimeError("broken"))
        except RuntimeError:
            await self.next()

    async def interrupted(self) -> None:
        question, text = self.question(), self.fresh("Let me see")
        async with self.chat.resent([*map(self.spelt, [*self.mine, question])]) as turn:
            turn.emit(text)
            turn.stop()
        cut = text[: len(text) - self.pick.randrange(3)]
        held = [question, {"role": "assistant", "content": cut}][: self.pick.randrange(3)]
        self.unfinished |= {*tokens(question), text, cut}
        self.mine += held
        await self.next()

    async def hide_again(self, turns: list[Turn]) -> None:
        """A repeated question or answer is a turn of its own, with nothing hidden yet."""
        for turn in turns:
            for place, item in enumerate(turn.items):
                if self.hidden & {token for each in messages_of([item]) for token in tokens(each)}:
                    await self.chat.flag(turn.id, place, to_user=False)

    async def agrees(self) -> None:
        turns = await self.chat.turns(limit=1_000)
        await self.hide_again(turns)
        self.chat_has_turns = bool(turns)
        seen = (
            self.unfinished
            | self.hidden
            | {token for turn in turns if turn.kind is not TurnKind.COMPLETED for token in tokens_of(turn)}
        )
        stored = [
            token
            for turn in turns
            if turn.kind is TurnKind.COMPLETED
            for token in tokens_of(turn)
            if token not in seen
        ]
        held = [token for each in self.mine for token in tokens(each) if token not in seen]
        trimmed = [token for token in self.trimmed if token not in seen]
        assert stored[len(stored) - len(held) :] == held
        before = stored[: len(stored) - len(held)]
        assert before == trimmed


STEPS = (
    *(Client.next, Client.next, Client.regenerate, Client.edit, Client.edit_answer, Client.delete),
    *(Client.trim, Client.fail_and_retry, Client.fail_and_move_on, Client.interrupted),
    *(Client.trim, Client.edit_in_place, Client.bring_along, Client.hide, Client.delete_one),
    Client.continue_answer,
)


async def live(steps: list[int], seed: int) -> None:
    async with await Ledger.over(MemoryStore(Database()), random=Random(seed)) as ledger:
        client = Client(await ledger.conversation(), Random(seed))
        for step in steps:
            await STEPS[step](client)
            await client.agrees()
        assert await ledger.check() == []


@settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(st.integers(0, len(STEPS) - 1), min_size=2, max_size=9), st.integers(0, 10_000))
def test_ledger_holds_the_message_list_of_a_resending_client_once(steps: list[int], seed: int) -> None:
    asyncio.run(live(steps, seed))
