"""A model of one chat without store or server, for requests one after the other.

Concurrent requests must look as if they were sent in some serial order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import permutations
from typing import NamedTuple, TypeAlias

Turn: TypeAlias = tuple[str, bool]
"""Input, and whether it existed before the race."""
Line: TypeAlias = tuple[Turn, ...]


class Chat(NamedTuple):
    """A chat: its branches, the shown one, and its forks by request."""

    branches: Mapping[str, Line]
    shown: str
    forks: Mapping[str, Line] = {}
    title: str | None = None
    revision: int = 1
    is_deleted: bool = False
    done: Mapping[str, int] = {}
    """Answers to successful requests, for their repetitions."""

    @property
    def line(self) -> Line:
        return self.branches[self.shown]

    def branched(self, request: str, line: Line) -> Chat:
        """Add a branch and show it."""
        return self._replace(branches={**self.branches, request: line}, shown=request)


Answer: TypeAlias = tuple[int, Chat]
Work: TypeAlias = Callable[[str, Chat], Answer]


class Request(NamedTuple):
    name: str
    work: Work
    method: str
    path: str
    body: Mapping[str, object]
    needs_key: bool = True

    def after(self, chat: Chat) -> Answer:
        """Return the answer and the chat after it."""
        if chat.is_deleted and self.work not in (delete, restore):
            return 410, chat
        if self.name in chat.done:
            return chat.done[self.name], chat
        status, changed = self.work(self.name, chat)
        if status < 300 and self.needs_key:
            changed = changed._replace(done={**changed.done, self.name: status})
        return status, changed


def send(name: str, chat: Chat) -> Answer:
    line = (*chat.line, (name, False))
    return 200, chat._replace(branches={**chat.branches, chat.shown: line})


def edit(turn: str) -> Work:

    def work(name: str, chat: Chat) -> Answer:
        if (turn, True) not in chat.line:
            return 404, chat
        return 200, chat.branched(name, (*chat.line[: chat.line.index((turn, True))], (name, False)))

    return work


def regenerate(name: str, chat: Chat) -> Answer:
    if not chat.line:
        return 404, chat
    return 200, chat.branched(name, (*chat.line[:-1], (chat.line[-1][0], False)))


def undo(turn: str | None = None) -> Work:
    """Undo the last turn, if it is this one."""

    def work(name: str, chat: Chat) -> Answer:
        if not chat.line:
            return 404, chat
        if turn is not None and chat.line[-1] != (turn, True):
            return 409, chat
        return 200, chat.branched(name, chat.line[:-1])

    return work


def switch(branch: str) -> Work:
    return lambda name, chat: (200, chat._replace(shown=branch))


def fork(turn: str | None = None) -> Work:

    def work(name: str, chat: Chat) -> Answer:
        if turn is not None and (turn, True) not in chat.line:
            return 404, chat
        end = len(chat.line) if turn is None else chat.line.index((turn, True)) + 1
        return 201, chat._replace(forks={**chat.forks, name: chat.line[:end]})

    return work


def rename(name: str, chat: Chat) -> Answer:
    """Rename it, if its revision is unchanged."""
    if chat.revision != 1:
        return 412, chat
    return 200, chat._replace(title=name, revision=2)


def delete(name: str, chat: Chat) -> Answer:
    return 200, chat._replace(is_deleted=True)


def restore(name: str, chat: Chat) -> Answer:
    return 200, chat._replace(is_deleted=False)


class Outcome(NamedTuple):
    """The answers in the order of the requests, and the final state."""

    answers: tuple[int, ...]
    shown: Line | None
    """None if deleted."""
    branches: tuple[Line, ...]
    forks: tuple[tuple[str, Line], ...]
    title: str | None


def seen(answers: Iterable[int], chat: Chat) -> Outcome:
    forks = tuple(sorted(chat.forks.items()))
    if chat.is_deleted:
        return Outcome(tuple(answers), None, (), forks, None)
    branches = tuple(sorted(chat.branches.values()))
    return Outcome(tuple(answers), chat.line, branches, forks, chat.title)


def outcomes(chat: Chat, requests: list[Request]) -> set[Outcome]:
    """Return the outcomes of all serial orders."""
    found: set[Outcome] = set()
    for order in permutations(range(len(requests))):
        answers, now = dict[int, int](), chat
        for place in order:
            answers[place], now = requests[place].after(now)
        found.add(seen((answers[place] for place in range(len(requests))), now))
    return found
