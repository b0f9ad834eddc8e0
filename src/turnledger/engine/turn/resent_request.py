"""Turns of clients that send the whole history each time: find what is new in it, and where it goes.

The request is read against the current line, and again if begin finds that the line has changed, so nothing
is decided on an outdated line.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import dropwhile, takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from turnledger.engine.attempt.fork import Divergence
from turnledger.engine.attempt.idempotency import IdempotencyKey
from turnledger.engine.conversations.resolve import Target, check_live, find
from turnledger.engine.history.history import BranchCache, LatestLine
from turnledger.engine.ports import Tables
from turnledger.engine.process import TURNS_AT_ONCE, Process
from turnledger.engine.resend import match
from turnledger.engine.resend.match import Continuation, Meaning, Regeneration, SentMessages, Trimmed, decide
from turnledger.engine.turn.begin import ExpectedHead, TurnContent
from turnledger.engine.turn.snapshot import Base, flags_of
from turnledger.errors import HistoryDiverged, MalformedItems, TurnledgerError
from turnledger.model.conversation import Branch
from turnledger.model.flags import hidden_from_user
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, calls_left_open, check_resent
from turnledger.model.messages.messages import items_of_messages
from turnledger.model.messages.projection import normalize_text
from turnledger.model.turn import Instructions, Turn

ChatMessage = Mapping[str, Any]
LONG = 1_000
"""Turns and messages from which on they are compared in a thread."""
MOST_PARTS = 10_000
"""Fields, parts, or calls of one message: each is processed several times."""


class OnDivergence(StrEnum):
    """What to do with a history that differs from the stored one."""

    BRANCH = "branch"  # make a new branch of it, which the conversation then shows
    REJECT = "reject"  # raise HistoryDiverged


@dataclass(frozen=True)
class CurrentRequest:
    target: Target
    now: int


async def current(tables: Tables, request: CurrentRequest) -> tuple[Branch | None, int]:
    """Return the current branch of a conversation, and the flag version of the owner; no branch for a
    conversation that is yet to be made."""
    target = request.target
    found = await find(tables, target)
    if found is None and target.fresh is not None and target.id in (None, target.fresh.id):
        return None, await tables.flag_version()
    conversation = await check_live(tables, found, request.now)
    return await tables.branch(conversation.branch), await tables.flag_version()


def guess_line(cache: BranchCache, target: Target) -> LatestLine | None:
    """Return what the target most likely shows; None if not cached."""
    if target.id is not None:
        known = cache.line((target.owner, "", target.id))
        return known if known is None or target.within.reaches(known.scope, target.id) else None
    name = target.conversation_key
    if name is None or target.within.chat is not None:  # the cache does not say which chat has the key
        return None
    return cache.line((target.owner, target.scope, name))


class ResentRequest:
    """The whole history that a client sent. `read` finds what it means on the current line. With `shows_all`,
    the model is shown what the client has trimmed, too."""

    def __init__(
        self,
        process: Process,
        messages: Sequence[ChatMessage],
        sent: SentMessages | None,
        on_divergence: OnDivergence,
        *,
        shows_all: bool = False,
    ) -> None:
        self._process = process
        self._shows_all = shows_all
        # A copy: the client may change its list while the request waits.
        self._whole = tuple(messages)
        if not all(type(message) is dict or isinstance(message, Mapping) for message in self._whole):
            raise MalformedItems("Messages are a list of objects, each with a `role`.")
        for number, message in enumerate(self._whole):
            if len(message) > MOST_PARTS:
                raise MalformedItems(f"messages[{number}] has more than {MOST_PARTS} fields. Send fewer.")
            for name in ("content", "tool_calls"):
                parts = message.get(name)
                if isinstance(parts, list) and len(parts) > MOST_PARTS:
                    raise MalformedItems(
                        f"messages[{number}].{name} has more than {MOST_PARTS} parts. Send fewer."
                    )
        self._sent = sent
        self._on_divergence = on_divergence
        self._messages = self._whole
        self.prefill: tuple[Item, ...] = ()
        """The answers at the end of the messages: the turn's answer begins with them."""
        if self._whole and self._whole[-1].get("role") == "assistant":
            begin = match.begin_of_prefill(self._whole)
            self._messages, answers = self._whole[:begin], self._whole[begin:]
            process.limits.check_messages("The prefill", answers)
            self.prefill = items_of_messages(answers)
            process.limits.check_size("The prefill", self.prefill)

    def key(self, other: IdempotencyKey) -> IdempotencyKey:
        """Return the key with the messages as sent, whatever they now mean, added to its fingerprint."""
        sent = [self._sent, self._on_divergence, self._whole]
        try:
            body = msgspec.json.encode(sent, enc_hook=dict, order="deterministic")
        except (TypeError, ValueError, RecursionError) as problem:
            raise MalformedItems(f"messages must be valid JSON: {problem}.") from None
        results = takewhile(lambda message: message.get("role") == "tool", reversed(self._messages))
        named = (message.get("tool_call_id") for message in results)  # not checked yet
        answers = frozenset(each for each in named if isinstance(each, str))
        return IdempotencyKey(other.text, hashlib.sha256(other.fingerprint + body).digest(), answers)

    async def read(self, target: Target, conversation: ConversationId | None) -> TurnContent:
        """Read the messages against the current line: of the conversation that begin found or, before the
        first begin, of the one that this process left last. Raises NoNewInput, MalformedItems,
        HistoryDiverged and the errors of a conversation that cannot be continued."""
        process = self._process
        if conversation is not None:
            target = replace(target, id=conversation)
        guess = guess_line(process.cache, target) if conversation is None else None
        if guess is not None:
            with suppress(TurnledgerError):  # the cached line may be outdated
                if guess.is_plain and self._is_all_new(guess.branch):
                    return self._added(guess)
                return await self._read(target.owner, guess.branch, guess.flag_version)
        request = CurrentRequest(target, process.clock.due_ms())
        branch, flagged = await process.store.read(current, request, target.owner)
        if branch is None:
            assert target.fresh is not None  # noqa: S101 - else it would have to be there
            branch = Branch(id=target.fresh.branch, conversation=target.fresh.id)
        return await self._read(target.owner, branch, flagged)

    def _is_all_new(self, branch: Branch) -> bool:
        """Return whether the messages alone show that all are new: only user messages, and not one that may
        be the only question again."""
        if self._sent is SentMessages.FULL:
            return False
        may_ask_again = branch.length == 1 == len(self._whole) and self._sent is None
        return not may_ask_again and all(each.get("role") == "user" for each in self._whole)

    def _added(self, line: LatestLine) -> TurnContent:
        self._process.limits.check_messages("The input", self._messages)
        input = items_of_messages(self._messages)
        check_resent(input)
        self._process.limits.check_size("The input", input)
        branch = line.branch
        seen = ExpectedHead(branch.id, branch.head, branch.unsettled, line.flag_version, branch.conversation)
        return TurnContent(input, seen=seen)

    async def _read(self, owner: str, branch: Branch, flagged: int) -> TurnContent:
        limits = self._process.limits
        turns = await self._seen_by_user(branch, owner, flagged) if branch.length else ()
        if len(turns) + len(self._messages) < LONG:
            meaning, notes = self._decide(turns, branch)
        else:  # some 20 µs each: too long for the event loop
            meaning, notes = await asyncio.to_thread(self._decide, turns, branch)
        leading_ones = self._messages[: meaning.instructions]
        limits.check_messages("What is given as instructions", leading_ones)
        leading = tuple(each for each in items_of_messages(leading_ones) if not each.is_blank)
        limits.check_size("What is given as instructions", leading)
        in_force = turns[branch.instructed - 1].instructions if branch.instructed else ()
        home = branch.conversation
        return TurnContent(
            input=() if isinstance(meaning, Regeneration) else self._input(meaning, turns, branch, notes),
            instructions=Instructions(leading) if leading_ones else None,  # blank ones end those in force
            diverge=self._divergence(meaning, turns),
            seen=ExpectedHead(branch.id, branch.head, branch.unsettled, flagged, home, leading == in_force),
            trimmed=self._trimmed(meaning),
        )

    def _trimmed(self, meaning: Meaning) -> Trimmed | None:
        trimmed = meaning.trimmed
        if trimmed is not None and trimmed.preamble:
            self._process.limits.check_size("What precedes the history", trimmed.preamble)
        if trimmed is None or not self._shows_all:
            return trimmed
        return Trimmed(0, preamble=trimmed.preamble) if trimmed.preamble else None

    async def _seen_by_user(self, branch: Branch, owner: str, flagged: int) -> Sequence[Turn]:
        """Return the turns of a branch as chat.history shows them."""
        process = self._process
        history = await process.snapshot(owner, branch)
        for end in range(TURNS_AT_ONCE, len(history), TURNS_AT_ONCE):
            if process.cache.extend_shown(branch.id, history.first(end)):
                await asyncio.sleep(0)
        if not flagged:
            return process.cache.shown(branch.id, history)
        base = Base(branch, branch.head, branch.length, (), branch.id, branch.instructed, owner, flagged)
        hidden = hidden_from_user(await flags_of(process, base, history))
        return process.cache.shown(branch.id, history, hidden)

    def _decide(self, turns: Sequence[Turn], branch: Branch) -> tuple[Meaning, Sequence[ChatMessage]]:
        """Return what the request means, and the new notes within the part that it shares with the line."""
        meaning = decide(turns, self._whole, self._sent)
        notes = self._new_notes(meaning, turns)
        if isinstance(meaning, match.MatchedEdit) and self._on_divergence is OnDivergence.REJECT:
            raise HistoryDiverged
        # Settled turns that are carried over close the calls of the last common turn: if results for them are
        # new, that turn is repeated, too.
        if isinstance(meaning, Regeneration):
            replaced = _turn(turns, meaning.turn)
            input = _visible_items(replaced, replaced.input)
            again = match.MatchedEdit(
                replaced.parent, len(self._messages), meaning.instructions, input, meaning.trimmed
            )
            edit = self._repeat_closed(again, turns, branch)
            return (meaning if edit is again and not notes else edit), notes
        if isinstance(meaning, match.MatchedEdit):
            return self._repeat_closed(meaning, turns, branch), notes
        return meaning, notes

    def _new_notes(self, meaning: Meaning, turns: Sequence[Turn]) -> Sequence[ChatMessage]:
        """Return the system messages within the stored part that no stored message contains, in order.
        Matching skips them, so they are new. Repeated instructions are not."""
        first = meaning.instructions
        end = len(self._messages) if isinstance(meaning, Regeneration) else meaning.new
        notes = [each for each in self._messages[first:end] if _is_note(each)]
        if not notes:
            return ()
        in_force = next((turn.instructions for turn in reversed(turns) if turn.instructions), ())
        repeated = {_words(message) for message in self._messages[:first]}
        repeated |= {normalize_text(item.text) for item in in_force}
        stored = Counter(
            normalize_text(item.text)
            for turn in turns
            for item in turn.items
            if item.role in match.NOTE_ROLES
        )
        new: dict[str, ChatMessage] = {}
        for note in notes:
            words = _words(note)
            if not words or words in repeated:
                continue
            if stored[words]:
                stored[words] -= 1
            else:
                new.setdefault(words, note)
        return tuple(new.values())

    def _repeat_closed(
        self, meaning: match.MatchedEdit, turns: Sequence[Turn], branch: Branch
    ) -> match.MatchedEdit:
        while meaning.after is not None and self._answers(meaning):
            last = _turn(turns, meaning.after)
            later = (turn.is_carried for turn in turns[last.number :])
            is_closed = branch.unsettled is not None or any(later)
            if not is_closed or not calls_left_open(last.items):
                break
            before = turns[last.number - 2].id if last.number > 1 else None
            meaning = replace(meaning, after=before, kept=(*_visible_items(last, last.items), *meaning.kept))
        return meaning

    def _answers(self, meaning: match.MatchedEdit) -> bool:
        if meaning.kept:
            return meaning.kept[0].is_result
        return meaning.new < len(self._messages) and self._messages[meaning.new].get("role") == "tool"

    def _input(
        self,
        meaning: Continuation | match.MatchedEdit,
        turns: Sequence[Turn],
        branch: Branch,
        notes: Sequence[ChatMessage],
    ) -> tuple[Item, ...]:
        """Return the new messages as items, after the kept part of the replaced turn. New notes come first,
        but after results, which answer the turn before."""
        waiting = branch.pending
        kept = meaning.kept if isinstance(meaning, match.MatchedEdit) else ()
        if isinstance(meaning, match.MatchedEdit):
            before = _turn(turns, meaning.after).items if meaning.after else ()
            waiting = calls_left_open((*before, *kept))
        self._process.limits.check_messages("The input", self._messages[meaning.new :])
        input = items_of_messages(_under_stored_ids(self._messages, meaning.new, waiting), waiting)
        # The client's copy of an empty answer matches nothing, and is no input.
        input = (*kept, *dropwhile(lambda item: item.is_empty_answer, input))
        if notes:
            behind = next((place for place, item in enumerate(input) if not item.is_result), len(input))
            input = (*input[:behind], *items_of_messages(notes), *input[behind:])
        check_resent(input)
        self._process.limits.check_size("The input", input)
        return input

    def _divergence(self, meaning: Meaning, turns: Sequence[Turn]) -> Divergence | None:
        """Return the place of the turn, if not behind the head: that of the turn it replaces."""
        if isinstance(meaning, Continuation):
            return None
        branch = self._process.ids.new(BranchId)
        if isinstance(meaning, Regeneration):
            return Divergence(branch=branch, replaces=meaning.turn, regenerates=True)
        common = _turn(turns, meaning.after).number if meaning.after else 0
        return Divergence(branch=branch, replaces=turns[common].id)


def _is_note(message: ChatMessage) -> bool:
    return message.get("role") in match.NOTE_ROLES


def _words(note: ChatMessage) -> str:
    return normalize_text("".join(item.text for item in items_of_messages([note])))


def _visible_items(turn: Turn, items: Sequence[Item]) -> tuple[Item, ...]:
    """Return items of a turn as input of another one: without hidden ones, except calls to be answered."""
    asks = calls_left_open(items)
    return tuple(item for place, item in enumerate(items) if place not in turn.shown.hidden or item in asks)


def _turn(turns: Sequence[Turn], id: TurnId) -> Turn:
    return next(turn for turn in reversed(turns) if turn.id == id)


def _under_stored_ids(
    messages: Sequence[ChatMessage], new: int, waiting: Sequence[Item]
) -> Sequence[ChatMessage]:
    """Return the new messages, with results for the open calls under the stored ids: a client may use ids of
    its own. The ids show which call a result answers; if not, its position does."""
    ids = [call.call_id for call in waiting]
    own = _open_ids(messages[:new]) if ids else []
    if not ids or len(own) != len(ids):
        return messages[new:]
    end = next((at for at in range(new, len(messages)) if messages[at].get("tool_calls")), len(messages))
    results = [at for at in range(new, end) if messages[at].get("role") == "tool"]
    renamed = list(messages[new:])
    # First by the client's own ids, then by the stored ones, then in order.
    for names in (own, ids, None):
        for at in tuple(results):
            sent = messages[at].get("tool_call_id")
            place = 0 if names is None else names.index(sent) if sent in names else None
            if place is not None and ids:
                renamed[at - new] = {**messages[at], "tool_call_id": ids.pop(place)}
                own.pop(place)
                results.remove(at)
    return renamed


def _open_ids(matched: Sequence[ChatMessage]) -> list[Any]:
    """Return the client's ids of the calls at the end of the part it shares with the line, in order, without
    those answered there."""
    end = len(matched)
    while end and matched[end - 1].get("role") == "tool":
        end -= 1
    begin = end
    while begin and matched[begin - 1].get("role") == "assistant":
        begin -= 1
    answered = [message.get("tool_call_id") for message in matched[end:]]
    lists = [message.get("tool_calls") for message in matched[begin:end]]
    calls = [call for each in lists if isinstance(each, list) for call in each if isinstance(call, Mapping)]
    return [call.get("id") for call in calls if call.get("id") not in answered]
