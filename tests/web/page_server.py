"""A server with the page, a scripted model, and users with tokens.

Tests share a server where possible, each with its own owner. Tests without tokens or with other settings
start their own.
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
from tests.terminal.server_process import RestartableServer
from tests.terminal.upstream import ScriptedModelServer, run_scripted_model
from tools.node_package import PAGE
from turnledger import Ledger
from turnledger.hosting import Host

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
SCOPES = ("admin", "chats:read", "chats:write", "turns:run")
STORED = "turnledger page:own:token"
"""Storage key of the page for its token."""
UNTITLED = '[chats]\ntitle_model = ""'
"""Chats have their first words as titles: a title would take a script of the model."""
MODELS = ("scripted", "other", "mistral-small", "qwen3")
"""The last two are for screenshots."""
SIGN_IN_SCRIPT = """try {
  if (document.cookie.includes("enters=yes")) {
    localStorage.setItem(%s, %s);
    document.cookie = "enters=; Max-Age=0; Path=/";
  }
} catch { /* a frame without storage */ }"""
"""Runs once, so that a user who signs out stays signed out."""
FAST_TIMERS = """for (const name of ["setTimeout", "setInterval"]) {
  const set = window[name];
  window[name] = (work, pause) => set(work, pause >= 2000 && pause <= 15000 ? pause / 50 : pause);
}"""
"""Shortens the timers of seconds in a page, such as those of retries."""

Done = TypeVar("Done")
Profile = Callable[..., BrowserContext]
"""Creates a browser profile; see conftest."""


class PageServer:
    def __init__(self, process: RestartableServer, model: ScriptedModelServer) -> None:
        self.process = process
        self.model = model
        self._owners = itertools.count()

    @property
    def url(self) -> str:
        return self.process.url

    @property
    def store(self) -> str:
        return f"sqlite:///{self.process.folder}/served.db"

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Kill the server, and restart it at the end of the block."""
        self.process.kill()
        try:
            yield
        finally:
            self.process.start()

    def on_ledger(
        self, work: Callable[[Ledger], Coroutine[Any, Any, Done]], patience: float = PATIENCE
    ) -> Done:
        """Run work directly on the store, as another process would."""

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
        """Create a user with a token, or another token of a user."""
        name = owner or f"person-{next(self._owners)}"

        async def make(ledger: Ledger) -> str:
            _, text = await Host(ledger).tokens.create(scopes=scopes, owner=name, **narrowed)
            return text

        return Person(self, name, self.on_ledger(make))


class Person:
    """A user, with requests of a program beside the page."""

    def __init__(self, page_server: PageServer, owner: str, token: str) -> None:
        self.server = page_server
        self.owner = owner
        self.token = token

    def sign_in_on_load(self, context: BrowserContext) -> None:
        """Sign in when a page first loads. Playwright's `storage_state` would open a page for it."""
        context.add_cookies([{"name": "enters", "value": "yes", "url": self.server.url}])
        context.add_init_script(SIGN_IN_SCRIPT % (json.dumps(STORED), json.dumps(self.token)))

    def fetch(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request, and return the decoded answer."""
        content = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = Request(self.server.url + path, content, named, method=method)
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def run_turn(self, text: str, chat: str | None = None, **more: Any) -> Any:
        return self.fetch("POST", "/api/turns", {"model": "scripted", "input": text, "chat": chat, **more})

    def turns(self, chat: str) -> list[tuple[str, str]]:
        """Return the texts of questions and answers."""
        return [
            (_words(turn["input"]), _words(turn["output"]))
            for turn in self.fetch("GET", f"/api/chats/{chat}")["turns"]
        ]

    def chats(self) -> list[Any]:
        return list(self.fetch("GET", "/api/chats")["data"])


def _words(items: list[Any]) -> str:
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


@contextmanager
def run_page_server(folder: Path, *settings: str, flags: tuple[str, ...] = ()) -> Iterator[PageServer]:
    """Run a server with the page and these additional lines of configuration."""
    built(PAGE)
    with run_scripted_model() as model:
        config = folder / "turnledger.toml"
        if not any("[chats]" in each for each in settings):
            settings = (*settings, UNTITLED)
        tables = [f'[models.{name}]\nupstream = "{model.url}"\n' for name in MODELS]
        config.write_text("\n".join((*settings, *tables)))
        with RestartableServer(folder, "--config", str(config), *flags) as process:
            yield PageServer(process, model)
