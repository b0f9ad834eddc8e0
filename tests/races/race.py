"""Clients that race for a chat at two workers: `python -m tests.races.race --rounds 500 --seed 7`.

Each round sends concurrent requests for a fresh chat to both workers: send, edit, regenerate, undo, switch,
fork, rename, delete and restore; some twice under one key. The answers and the final state must be those of
the same requests in some serial order.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.crash.several_workers import SeveralWorkers, several_workers
from tests.crash.tcp_server import PartialResponse, exchange, request
from tests.races import serial_model
from tests.races.serial_model import Chat, Line, Outcome, Request, outcomes
from turnledger import Ledger
from turnledger.testing.upstream import ScriptedUpstream

MODEL = "scripted"
TURNS = ("q1", "q2", "q3")
BEFORE = Chat(
    branches={
        "main": tuple((text, True) for text in TURNS),
        "other": (("q1", True), ("x2", True)),
    },
    shown="main",
)
AT_ONCE = 4
"""Requests in a round."""


class Scene:
    """A chat with three turns, and another branch with the same beginning."""

    def __init__(self, server: SeveralWorkers) -> None:
        self._server = server
        self.chat = ""
        self.turns: dict[str, str] = {}
        self.branches: dict[str, str] = {}
        self.revision = 0

    async def set(self) -> None:
        for text in TURNS:
            describe = await self.turn(text, **({"chat": self.chat} if self.chat else {}))
            self.chat = describe["chat"]["id"]
        self.branches["main"] = describe["branch"]
        describe = await self.turn("x2", chat=self.chat, replaces=self.turns["q2"])
        self.branches["other"] = describe["branch"]
        back = await self.fetch("POST", f"/api/chats/{self.chat}/switch", {"branch": self.branches["main"]})
        assert back.status == 200, back.body
        self.revision = msgspec.json.decode(back.body)["revision"]

    async def turn(self, text: str, **body: Any) -> Any:
        reply = await self.fetch("POST", "/api/turns", {"model": MODEL, "input": text, **body})
        assert reply.status == 200, reply.body
        describe = msgspec.json.decode(reply.body)
        self.turns[text] = describe["turn"]["id"]
        return describe

    async def fetch(self, method: str, path: str, body: Any = None, **headers: str) -> PartialResponse:
        return await exchange(self._server.port, request(path, body, method=method, **headers))

    async def line(self, path: str) -> Line | None:
        """Return the turns of a chat or branch; None if it was deleted."""
        reply = await self.fetch("GET", path)
        if reply.status == 410:
            return None
        assert reply.status == 200, reply.body
        known = set(self.turns.values())
        describe = msgspec.json.decode(reply.body)["turns"]
        assert [turn["number"] for turn in describe] == list(range(1, len(describe) + 1))
        for before, after in itertools.pairwise(describe):
            assert after["parent"] == before["id"]
        return tuple((text_of(turn["input"][-1]), turn["id"] in known) for turn in describe)

    async def branch_lines(self) -> tuple[Line, ...]:
        reply = await self.fetch("GET", f"/api/chats/{self.chat}/branches")
        if reply.status == 410:
            return ()
        ids = [each["id"] for each in msgspec.json.decode(reply.body)["data"]]
        lines = [await self.line(f"/api/chats/{self.chat}?branch={id}") for id in ids]
        return tuple(sorted(line for line in lines if line is not None))

    async def title(self) -> str | None:
        """Return the title set by a user."""
        describe = msgspec.json.decode((await self.fetch("GET", f"/api/chats/{self.chat}")).body)
        return describe.get("title") if describe.get("revision", self.revision) != self.revision else None


def text_of(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


class Race:
    """Rounds of requests, chosen by a seed."""

    def __init__(self, server: SeveralWorkers, seed: int, paths: dict[str, Any]) -> None:
        self._server = server
        self._random = Random(seed)
        self._paths = paths
        self.answers: Counter[tuple[str, int]] = Counter()
        """Number of answers, by request and status."""

    def _choose(self, scene: Scene) -> list[Request]:
        """Draw requests; the last may repeat another."""
        requests = [self._request(scene, f"r{number}") for number in range(AT_ONCE)]
        if self._random.random() < 0.6:
            again = self._random.choice([each for each in requests if each.needs_key] or requests)
            requests[-1] = again
        return requests

    def _request(self, scene: Scene, name: str) -> Request:
        random, chat = self._random, f"/api/chats/{scene.chat}"
        turn, branch = random.choice([*TURNS, "x2"]), random.choice(["main", "other"])
        common = {"model": MODEL, "chat": scene.chat}
        kinds: list[tuple[serial_model.Work, str, dict[str, object]]] = [
            (serial_model.send, "/api/turns", {**common, "input": name}),
            (serial_model.edit(turn), "/api/turns", {**common, "input": name, "replaces": scene.turns[turn]}),
            (serial_model.regenerate, "/api/turns", {**common, "regenerates": True}),
            (serial_model.undo(), f"{chat}/undo", {}),
            (serial_model.undo("q3"), f"{chat}/undo", {"turn": scene.turns["q3"]}),
            (serial_model.switch(branch), f"{chat}/switch", {"branch": scene.branches[branch]}),
            (serial_model.fork(), f"{chat}/fork", {"title": name}),
            (serial_model.fork(turn), f"{chat}/fork", {"title": name, "turn": scene.turns[turn]}),
        ]
        dice = random.random()
        if "patch" in self._paths and dice < 0.1:
            return Request(name, serial_model.rename, "PATCH", chat, {"title": name}, needs_key=False)
        if "delete" in self._paths and dice < 0.14:
            return Request(name, serial_model.delete, "DELETE", chat, {}, needs_key=False)
        if "delete" in self._paths and dice < 0.2:
            return Request(name, serial_model.restore, "POST", f"{chat}/restore", {}, needs_key=False)
        work, path, body = random.choice(kinds)
        return Request(name, work, "POST", path, body)

    async def first_sends(self) -> None:
        """Send the first message of a page to both workers: there must be one chat."""
        key = f"page {self._random.random()}"
        bodies = [{"model": MODEL, "input": f"first {count}", "conversation_key": key} for count in range(8)]
        replies = await asyncio.gather(
            *(exchange(self._server.port, request("/api/turns", body)) for body in bodies)
        )
        describe = [msgspec.json.decode(reply.body) for reply in replies]
        assert len({each["chat"]["id"] for each in describe}) == 1, describe
        assert sorted(each["turn"]["number"] for each in describe) == list(range(1, 9))
        assert [each["state"] for each in describe].count("created") == 1

    async def round(self) -> None:
        """Run one race. Raises AssertionError if no serial order explains it."""
        scene = Scene(self._server)
        await scene.set()
        requests = self._choose(scene)
        one = await self._server.line()
        lines = [one]
        for number in range(1, len(requests)):
            there = number % 2 == 1
            lines.append(await self._server.line(lambda worker, there=there: (worker != one.worker) == there))  # type: ignore[misc]
        replies = await asyncio.gather(
            *(line.exchange(self._bytes(scene, each)) for line, each in zip(lines, requests, strict=True))
        )
        for each, reply in zip(requests, replies, strict=True):
            kind = f"{each.method} {each.path.rpartition('/')[2] if 'conv_' in each.path else each.path}"
            self.answers[kind.replace(scene.chat, "chat"), reply.status] += 1
        self._check_same(requests, replies)
        outcome = await self._outcome(scene, requests, replies)
        possible = outcomes(BEFORE, requests)
        assert outcome in possible, describe(requests, replies, outcome, possible)

    def _bytes(self, scene: Scene, each: Request) -> bytes:
        headers = {"Idempotency-Key": f"{scene.chat}-{each.name}"} if each.needs_key else {}
        if each.method == "PATCH":
            headers["If-Match"] = f'"{scene.revision}"'
        body = None if each.work in (serial_model.delete, serial_model.restore) else each.body
        return request(each.path, body, method=each.method, **headers)

    def _check_same(self, requests: list[Request], replies: list[PartialResponse]) -> None:
        """Check that one key created one thing."""
        made: dict[str, set[str]] = {}
        for each, reply in zip(requests, replies, strict=True):
            if reply.status < 300 and each.path.endswith(("turns", "fork")):
                answer = msgspec.json.decode(reply.body)
                made.setdefault(each.name, set()).add(
                    answer["turn"]["id"] if "turn" in answer else answer["id"]
                )
        assert all(len(ids) == 1 for ids in made.values()), made

    async def _outcome(
        self, scene: Scene, requests: list[Request], replies: list[PartialResponse]
    ) -> Outcome:
        forks: dict[str, Line] = {}
        for each, reply in zip(requests, replies, strict=True):
            if each.path.endswith("/fork") and reply.status == 201:
                line = await scene.line(f"/api/chats/{msgspec.json.decode(reply.body)['id']}")
                assert line is not None
                forks[each.name] = line
        answers = tuple(200 if reply.status == 204 else reply.status for reply in replies)
        shown = await scene.line(f"/api/chats/{scene.chat}")
        branches = await scene.branch_lines()
        return Outcome(answers, shown, branches, tuple(sorted(forks.items())), await scene.title())


def describe(
    requests: list[Request], replies: list[PartialResponse], outcome: Outcome, possible: set[Outcome]
) -> str:
    sent = [f"{each.name} {each.method} {each.path} {each.body}" for each in requests]
    answered = [f"{reply.status} {reply.body[:300]!r}" for reply in replies]
    return "\n".join([*sent, *answered, f"got:  {outcome}", *(f"or:   {each}" for each in possible)])


async def race(folder: Path, seed: int, rounds: int) -> Race:
    """Run the rounds against two workers on one store, then check the store."""
    async with (
        ScriptedUpstream(otherwise=["Yes", "."], max_received=0) as upstream,
        several_workers(folder, upstream.url) as server,
    ):
        described = msgspec.json.decode((await server.get("/openapi.json")).body)
        race = Race(server, seed, described["paths"].get("/api/chats/{chat}", {}))
        for _ in range(rounds):
            await race.round()
            await race.first_sends()
    async with await Ledger.open(server.store) as ledger:
        assert await ledger.check(at_rest=True) == []
    return race


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        finished = asyncio.run(race(Path(folder), chosen.seed, chosen.rounds))
    for (kind, status), count in sorted(finished.answers.items()):
        print(f"{kind:28} {status} {count:6}")


if __name__ == "__main__":
    main()
