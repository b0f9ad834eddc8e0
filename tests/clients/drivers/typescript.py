"""The driver of the TypeScript client: a Node process, commanded by lines."""

from __future__ import annotations

import asyncio

from tests.clients.drivers.driver import RemoteDriver
from tests.clients.typescript_package import built

LONGEST_LINE = 64 * 1024 * 1024


class ProcessDriver(RemoteDriver):
    """A driver program with one message per line on standard input and output."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.name = name
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def started(cls, name: str, *command: str) -> ProcessDriver:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=LONGEST_LINE)
        return cls(name, process)

    async def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        if self._reading.done():
            self._lost()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._receive(line)
        self._lost()

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
    package = await asyncio.to_thread(built)
    return await ProcessDriver.started("typescript", "node", str(package / "dist" / "test" / "driver.js"))
