"""The driver of the TypeScript client in a browser: a page of an origin that the server allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Page, async_playwright

from tests.browser.chromium import installed
from tests.clients.drivers.driver import RemoteDriver
from tests.clients.typescript_package import built

PAGE = b"<!doctype html><title>driver</title><script type=module src=/test/page.js></script>"


class BrowserDriver(RemoteDriver):
    name = "browser"

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    async def open(self, url: str) -> None:
        await self._page.expose_function("reply", self._receive)
        await self._page.goto(url)
        await self._page.wait_for_function("window.command !== undefined")

    async def _send(self, line: bytes) -> None:
        await self._page.evaluate("line => window.command(line)", line.decode())

    async def close(self) -> None:
        await self._page.close()


class Site:
    """Serves the page and its scripts at an origin of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.origin = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
        kind, body = b"text/html", PAGE
        if path != "/":
            file = self._folder / path.lstrip("/")
            body = await asyncio.to_thread(file.read_bytes) if file.is_file() else b""
            kind = b"text/javascript"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        writer.write(head % (kind, len(body)) + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def page_site() -> AsyncIterator[Site]:
    """Serve the site before it is opened: the server needs its origin."""
    installed()
    site = Site(await asyncio.to_thread(built) / "dist")
    serving = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.origin = f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}"
    try:
        yield site
    finally:
        serving.close()


@asynccontextmanager
async def browser_driver(site: Site) -> AsyncIterator[BrowserDriver]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=installed(),
            chromium_sandbox=False,  # does not work for root; all pages are ours
            args=["--no-proxy-server", "--disable-dev-shm-usage"],
        )
        try:
            driver = BrowserDriver(await browser.new_page())
            await driver.open(site.origin + "/")
            yield driver
            await driver.close()
        finally:
            await browser.close()
