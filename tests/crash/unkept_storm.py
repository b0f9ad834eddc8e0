"""kill -9 of servers with unkept turns: `python -m tests.crash.unkept_storm --rounds 50 --seed 7`.

Several clients use two workers, which are killed at moments chosen by the seed and restarted on the same
files. No byte of an unkept turn may be in any file; acknowledged kept turns are complete.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from tests.crash.killed_server import ServerProcess, kill_at, repeat_until_killed
from turnledger.testing.upstream import ScriptedUpstream

CLIENTS = 6
SPARE = 30
"""Further rounds, if no kill of the first interrupts a request."""


class Markers:
    """Unique texts."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self) -> str:
        self.made.append(f"mark{secrets.token_hex(12)}")
        return self.made[-1]

    def found_in(self, folder: Path) -> set[str]:
        """Return the files of a folder that contain one of them, in any stored form."""
        forms = [form for text in self.made for form in (text.encode(), text.encode("utf-16-le"))]
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert any(path.name == "chats.db-wal" for path in files)  # otherwise the search misses the log
        return {path.name for path in files if any(form in path.read_bytes() for form in forms)}


class Server(ServerProcess):
    """`turnledger serve` with two workers and all files in one folder."""

    def __init__(self, folder: Path, upstream: str) -> None:
        config = folder / "turnledger.toml"
        config.write_text("[chats.scopes.desk]\nkeep = false\n")
        super().__init__(folder, upstream, "--config", str(config), "--workers", "2", "--log-level", "debug")


def body(mark: str, *, stream: bool) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": f"You are {mark}."},
        {"role": "user", "content": f"{mark} " * 2_000},  # more than a page of the file
        {"role": "assistant", "content": mark},
        {"role": "user", "content": mark},
    ]
    return {"model": "any", "messages": messages, "stream": stream, "user": mark}


class Storm:
    """Rounds that end with a kill, until one interrupts an unkept turn; files are searched after each."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._dice = Random(seed)
        self.unkept = Markers()
        self.kept = Markers()
        """Markers of acknowledged turns."""
        self.completed = 0
        """Unkept turns whose answers arrived whole."""

    async def run(self, rounds: int) -> None:
        """Raise AssertionError for a byte of an unkept turn, or a missing kept one."""
        async with ScriptedUpstream(otherwise=["word "] * 6, max_received=0) as upstream:
            for number in range(1, rounds + SPARE + 1):
                await self._round(upstream.url)
                assert self.unkept.found_in(self._folder) == set()
                if (
                    number >= rounds
                    and self.completed
                    and self.kept.made
                    and len(self.unkept.made) > self.completed
                ):
                    break
            else:
                raise AssertionError("no kill cut a request off: this shows nothing")
        raw = b"".join(path.read_bytes() for path in self._folder.glob("chats.db*") if path.is_file())
        assert [mark for mark in self.kept.made if mark.encode() not in raw] == []

    async def _round(self, upstream: str) -> None:
        server = Server(self._folder, upstream)
        url = await server.wait_ready()
        moment = kill_at(self._dice, server.kill)
        async with aiohttp.ClientSession() as session:
            send = partial(self._send, session, url, moment)
            await asyncio.gather(*(repeat_until_killed(send) for _ in range(CLIENTS)))
        await server.end()

    async def _send(self, session: aiohttp.ClientSession, url: str, moment: Callable[[str], None]) -> None:
        no = self._dice.choice([{}, {"X-Conversation-Keep": "no"}, {"X-Conversation-Scope": "desk"}])
        mark = self.unkept() if no else f"kept{secrets.token_hex(12)}"
        stream = self._dice.random() < 0.7
        headers = {"X-Conversation-Id": mark, **no}
        moment("sent")
        async with session.post(
            f"{url}/v1/chat/completions", json=body(mark, stream=stream), headers=headers
        ) as answer:
            received = b""
            async for piece in answer.content.iter_any():
                received += piece
                moment("streaming")
        is_whole = answer.status == 200 and (not stream or received.endswith(b"data: [DONE]\n\n"))
        assert is_whole, received[-300:]
        if no:
            self.completed += 1
        else:
            self.kept.made.append(mark)
        moment("answered")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        storm = Storm(Path(folder), given.seed)
        asyncio.run(storm.run(given.rounds))
    unkept = len(storm.unkept.made)
    print(f"{given.rounds} kills: {unkept} texts were not to be kept, and no byte of them is there;")
    print(f"{len(storm.kept.made)} were acknowledged as kept, and are.")


if __name__ == "__main__":
    main()
