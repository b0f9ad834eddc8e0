"""A browser and a server with the page, shared by the tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import browsing
from tests.browser.site import site
from tests.node_packages import built
from tests.terminal.server_process import RestartableServer
from tests.terminal.upstream import run_scripted_model
from tests.web.page_server import PATIENCE, PageServer, Person, Profile, run_page_server
from tools.node_package import PAGE

OPERATOR = "http://operator.test"
"""Origin whose pages may frame the server with the demo model."""
NOT_KEPT = "[chats.scopes.gossip]\nkeep = false"

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with browsing(is_light=True) as browser:
        yield browser


@pytest.fixture(scope="package")
def operator() -> Iterator[str]:
    """An origin on another site, whose pages may frame the server."""
    with site() as port:
        yield f"http://localhost:{port}"


@pytest.fixture(scope="package")
def page_server(operator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    frames = f'[server]\nframe_ancestors = ["{operator}"]'
    with run_page_server(tmp_path_factory.mktemp("house"), frames, NOT_KEPT) as page_server:
        yield page_server


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A server as `turnledger serve` starts it, with only the demo model; OPERATOR may frame it."""
    built(PAGE)
    folder = tmp_path_factory.mktemp("demo")
    config = folder / "turnledger.toml"
    config.write_text(f'[server]\nframe_ancestors = ["{OPERATOR}"]\n')
    with run_scripted_model() as unused, RestartableServer(folder, "--config", str(config)) as process:
        yield PageServer(process, unused)


@pytest.fixture
def person(page_server: PageServer) -> Iterator[Person]:
    """A user of this test only. Unplayed scripts of the model are dropped."""
    yield page_server.person()
    page_server.model.forget_scripts()


@pytest.fixture
def profile(browser: Browser) -> Iterator[Profile]:
    """Create browser profiles, with at most a token. Errors and warnings of the page fail the test."""
    opened: list[BrowserContext] = []
    wrong: list[str] = []

    def make(who: Person | None = None, **options: Any) -> BrowserContext:
        # Spinners would be drawn sixty times a second without a graphics card.
        options.setdefault("reduced_motion", "reduce")
        # The driver does not see requests behind a service worker.
        options.setdefault("service_workers", "block")
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE * 1000)
        if who is not None:
            who.sign_in_on_load(context)
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        context.on("console", lambda message: wrong.append(message.text) if _is_wrong(message) else None)
        opened.append(context)
        return context

    yield make
    for context in opened:
        context.close()
    assert wrong == []


def _is_wrong(message: Any) -> bool:
    # Browsers log connections that a test cuts and statuses that it expects; the driver, blocked workers.
    expected = ("Failed to load resource", "Service Worker registration blocked by Playwright")
    return message.type in {"error", "warning"} and not message.text.startswith(expected)


@pytest.fixture
def tab(person: Person, profile: Profile) -> Page:
    page = profile(person).new_page()
    page.goto(person.server.url)
    return page
