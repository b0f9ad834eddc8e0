"""The driver of the TypeScript client: a process of Node that is told what to do, a line each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.clients.drivers.driver import Command, Driver, Refused, Tell
from tests.clients.typescript_package import built

LONGEST_LINE = 64 * 1024 * 1024


class ProcessDriver(Driver):
    """A driver that is a program of its own, and speaks the protocol of the README."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._waiting: dict[int, tuple[asyncio.Future[Any], Tell]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def started(cls, name: str, *command: str, env: Mapping[str, str] | None = None) -> ProcessDriver:
        """Start the program."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=env,
            limit=LONGEST_LINE,
        )
        return cls(name, process)

    async def do(self, command: Command, tell: Tell) -> Any:
        assert self._process.stdin is not None
        if self._reading.done():
            raise Refused({"code": "driver_broke", "message": "the process of the driver has ended"})
        said: dict[str, Any] = {
            "id": command.id,
            "do": command.do,
            "on": command.on,
            "with": command.arguments,
        }
        if command.named is not None:
            said["as"] = command.named
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[command.id] = reply, tell
        self._process.stdin.write(msgspec.json.encode(said) + b"\n")
        try:
            return await reply
        finally:
            del self._waiting[command.id]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._take(msgspec.json.decode(line))
        for reply, _ in self._waiting.values():
            if not reply.done():
                reply.set_exception(
                    Refused({"code": "driver_broke", "message": "the process of the driver ended"})
                )

    def _take(self, said: dict[str, Any]) -> None:
        waiting = self._waiting.get(said["id"])
        if waiting is None or waiting[0].done():
            return
        reply, tell = waiting
        if "event" in said:
            tell(said["event"])
        elif "error" in said:
            reply.set_exception(Refused(said["error"], said.get("events")))
        else:
            reply.set_result(said.get("ok"))

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(10):
                code = await self._process.wait()
                await self._reading
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            raise AssertionError(f"the driver {self.name} did not end with its input") from None
        assert code == 0, f"the driver {self.name} ended with {code}"


async def typescript_driver() -> ProcessDriver:
    """The driver in the package, built."""
    package = await asyncio.to_thread(built)
    return await ProcessDriver.started("typescript", "node", str(package / "dist" / "test" / "driver.js"))
