"""A browser, an attacked server and sites, shared by the tests of a process."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.attacks import TOOLS
from tests.browser.chromium import browsing, installed
from tests.browser.site import Rebinding, site
from tests.browser.victim import PATIENCE, Victim, run_victim
from tests.node_packages import built
from tools.node_package import PAGE

Open: TypeAlias = Callable[[str], Page]


class Sites(NamedTuple):
    port: int
    rebinding: Rebinding

    def of(self, name: str) -> str:
        """Return the origin of this name."""
        return f"http://{name}:{self.port}"


@pytest.fixture(scope="package")
def sites() -> Iterator[Sites]:
    installed()
    with site() as port:
        rebinding = Rebinding(port)
        yield Sites(port, rebinding)
        rebinding.close()


@pytest.fixture(scope="package")
def victim(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with run_victim(tmp_path_factory.mktemp("attacked"), sites.of("friend.test")) as victim:
        yield victim


class Guarded(NamedTuple):
    """A server with a token, and requests of its owner."""

    victim: Victim
    token: str

    def fetch(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(self.victim.address, self.victim.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            result = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status < 300, result
        return result


@pytest.fixture(scope="package")
def guarded(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server with the chat page and a token. Pages of a trusted origin may call and frame it."""
    built(PAGE)
    friend, folder = sites.of("friend.test"), tmp_path_factory.mktemp("guarded")
    with run_victim(folder, friend, frames=(friend,)) as victim:
        command = [sys.executable, "-m", "turnledger", "tokens", "create", "--owner", "local"]
        scopes = ["--scopes", "admin,chats:read,chats:write,turns:run"]
        store = ["--store", f"sqlite:///{folder / 'chats.db'}"]
        made = subprocess.run([*command, *scopes, *store], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        yield Guarded(victim, made.stdout.strip())


@pytest.fixture(scope="package")
def browser(sites: Sites) -> Iterator[Browser]:
    rebound = f"MAP rebound.test 127.0.0.1:{sites.rebinding.port}"
    names = (rebound, "MAP *.test 127.0.0.1", "MAP *.localhost 127.0.0.1")
    with browsing(*names, public=sites.port, is_light=True) as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open a URL in a fresh profile."""
    with _profile(browser) as visit:
        yield visit


@pytest.fixture(scope="package")
def page_of(browser: Browser, sites: Sites) -> Iterator[Open]:
    """Return the open page of a name, shared by attacks that do not navigate. Each has its own window, since
    background pages are slow."""
    with ExitStack() as profiles:
        yield cache(lambda name: profiles.enter_context(_profile(browser))(sites.of(name)))


@contextmanager
def _profile(browser: Browser) -> Iterator[Open]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    context.add_init_script(TOOLS)

    def visit(url: str) -> Page:
        page = context.new_page()
        page.goto(url)
        return page

    yield visit
    context.close()
