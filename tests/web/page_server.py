"""A server with the page, a model that says what a test has written down, and people with tokens.

Tests share a server where they can: each has an owner of its own, whom nobody else's chats concern. Those
that want it without tokens, or with other settings, start their own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

from playwright.sync_api import BrowserContext

from tests.node_packages import built
from tests.terminal.server_process import Serving
from tests.terminal.upstream import Scripted, scripted
from tools.node_package import PAGE
from turnledger import Ledger
from turnledger.hosting import Host

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
SCOPES = ("admin", "chats:read", "chats:write", "turns:run")
STORED = "turnledger page:own:token"
"""Where the page keeps the token of who signed in."""
MODELS = ("scripted", "other", "mistral-small", "qwen3")
"""The last two are for pictures: one reads such names every day."""
ENTER = """try {
  if (document.cookie.includes("enters=yes")) {
    localStorage.setItem(%s, %s);
    document.cookie = "enters=; Max-Age=0; Path=/";
  }
} catch { /* a frame without storage */ }"""
"""Once: whoever signs out stays out."""
HASTE = """for (const name of ["setTimeout", "setInterval"]) {
  const set = window[name];
  window[name] = (work, pause) => set(work, pause >= 2000 && pause <= 15000 ? pause / 50 : pause);
}"""
"""Has a page do some times a second what it does every few seconds, such as asking again."""

Done = TypeVar("Done")
Profile = Callable[..., BrowserContext]
"""Makes a browser of somebody's own, see conftest."""


class House:
    """A server, its model and its store."""

    def __init__(self, serving: Serving, model: Scripted) -> None:
        self.serving = serving
        self.model = model
        self._owners = itertools.count()

    @property
    def url(self) -> str:
        return self.serving.url

    @property
    def store(self) -> str:
        return f"sqlite:///{self.serving.folder}/served.db"

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill the server, and start it again in the end."""
        self.serving.kill()
        try:
            yield
        finally:
            self.serving.start()

    def on_ledger(
        self, work: Callable[[Ledger], Coroutine[Any, Any, Done]], patience: float = PATIENCE
    ) -> Done:
        """Do something straight on the store, as another process does."""

        async def doing() -> Done:
            ledger = await Ledger.open(self.store)
            try:
                return await work(ledger)
            finally:
                await ledger.close()

        # Playwright keeps a loop running in this thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(doing())).result(patience)

    def person(
        self, *, scopes: tuple[str, ...] = SCOPES, owner: str | None = None, **narrowed: Any
    ) -> Person:
        """Somebody whom nobody else knows, with a token; or another token of somebody."""
        name = owner or f"person-{next(self._owners)}"

        async def make(ledger: Ledger) -> str:
            _, text = await Host(ledger).tokens.create(scopes=scopes, owner=name, **narrowed)
            return text

        return Person(self, name, self.on_ledger(make))


class Person:
    """Somebody, as a program of his sees the server."""

    def __init__(self, house: House, owner: str, token: str) -> None:
        self.house = house
        self.owner = owner
        self.token = token

    def enter(self, context: BrowserContext) -> None:
        """Sign in when a page of this context is first loaded. Playwright's own `storage_state` would open a
        page just for that."""
        context.add_cookies([{"name": "enters", "value": "yes", "url": self.house.url}])
        context.add_init_script(ENTER % (json.dumps(STORED), json.dumps(self.token)))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask as a program does, and return what is answered."""
        said = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = Request(self.house.url + path, said, named, method=method)
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def say(self, text: str, chat: str | None = None, **more: Any) -> Any:
        """Run a turn elsewhere than in the page."""
        return self.ask("POST", "/api/turns", {"model": "scripted", "input": text, "chat": chat, **more})

    def turns(self, chat: str) -> list[tuple[str, str]]:
        """What was said in a chat, and what was answered."""
        return [
            (_words(turn["input"]), _words(turn["output"]))
            for turn in self.ask("GET", f"/api/chats/{chat}")["turns"]
        ]

    def chats(self) -> list[Any]:
        return list(self.ask("GET", "/api/chats")["data"])


def _words(items: list[Any]) -> str:
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


@contextmanager
def housed(folder: Path, *settings: str, flags: tuple[str, ...] = ()) -> Iterator[House]:
    """Start a server with the page; these lines are added to its configuration."""
    built(PAGE)
    with scripted() as model:
        config = folder / "turnledger.toml"
        tables = [f'[models.{name}]\nupstream = "{model.url}"\n' for name in MODELS]
        config.write_text("\n".join((*settings, *tables)))
        with Serving(folder, "--config", str(config), *flags) as serving:
            yield House(serving, model)
