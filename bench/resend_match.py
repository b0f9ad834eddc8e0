"""The cost of matching a resent history, against decoding its JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from statistics import median
from typing import Any

import msgspec

from bench.measures import ANSWER, QUESTION
from bench.table import Line
from turnledger.engine.history.history import BranchCache, History
from turnledger.engine.resend.match import Continuation, MatchedEdit, Meaning, decide
from turnledger.model.ids import BranchId, IdSource, TurnId
from turnledger.model.item import message
from turnledger.model.turn import Turn, TurnKind


def resent_history(messages: int, rounds: int) -> list[Line]:
    """Decode a request of this many messages, then match it, alternately; the stored turns are cached."""
    line = _line(messages // 2)
    size = len(line)
    resent = [
        {"role": "system", "content": "Be brief."},
        *_chat(line),
        {"role": "user", "content": "And now?"},
    ]
    spaced = [{**each, "content": f"{each['content']}\n"} for each in resent]
    parts = [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in resent]
    edited = [*resent[: size + 1], {"role": "user", "content": "No."}, *resent[size + 2 :]]
    measured = [
        ("as they are", resent, Continuation, 2.0),
        ("each respelled", spaced, Continuation, 3.0),
        ("in parts", parts, Continuation, 3.0),
        ("one edited", edited, MatchedEdit, 30.0),  # rare, and the only one that searches the line
    ]
    return [
        Line(f"match {messages} messages, {name}, of decoding", _ratio(line, sent, meaning, rounds), target)
        for name, sent, meaning, target in measured
    ]


def repeated_messages(messages: int, rounds: int) -> list[Line]:
    """Match a chat of one repeated question and answer against one of different messages: ambiguity must not
    make matching slower than the length does."""
    same = _line(messages // 2, lambda number: "yes")
    other = _line(messages // 2)
    resent = [
        [*_chat(line)[:-1], {"role": "assistant", "content": "no"}, *_question()] for line in (same, other)
    ]
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for line, sent, times in zip((same, other), resent, took, strict=True):
            times.append(_timed(lambda line=line, sent=sent: decide(line, sent)))  # type: ignore[misc]
    return [Line(f"match {messages} repeated messages, of different", median(took[0]) / median(took[1]), 4.0)]


def _question() -> list[dict[str, Any]]:
    return [{"role": "user", "content": "And now?"}]


def _ratio(line: Sequence[Turn], sent: list[dict[str, Any]], meaning: type[Meaning], rounds: int) -> float:
    body = msgspec.json.encode(sent)
    decoding, matching = [], []
    for _ in range(rounds):
        decoding.append(_timed(lambda: msgspec.json.decode(body)))
        decoded = msgspec.json.decode(body)
        matching.append(_timed(lambda decoded=decoded: decide(line, decoded)))  # type: ignore[misc]
        assert isinstance(decide(line, decoded), meaning)
    return median(matching) / median(decoding)


def _timed(work: Callable[[], Any]) -> float:
    """Return CPU seconds of this thread: no disk is involved, and other load does not matter."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def _line(turns: int, text: Callable[[int], str] = str) -> Sequence[Turn]:
    ids = IdSource(count(1).__next__, Random(1).getrandbits)
    branch = ids.new(BranchId)
    history = History(
        [
            Turn.of(
                id=ids.new(TurnId),
                branch=branch,
                number=number,
                parent=None,
                kind=TurnKind.COMPLETED,
                created_at=1,
                committed_at=2,
                input=(message("user", f"{text(number)} {QUESTION}".strip()),),
                output=(message("assistant", f"{text(number)} {ANSWER}".strip()),),
            )
            for number in range(1, turns + 1)
        ]
    )
    return BranchCache(2**30).shown(branch, history)


def _chat(line: Sequence[Turn]) -> list[dict[str, Any]]:
    return [{"role": item.role, "content": item.text} for turn in line for item in turn.items]
