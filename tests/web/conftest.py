"""A browser and a server with the page, for all tests here that a process runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import browsing
from tests.browser.site import site
from tests.node_packages import built
from tests.terminal.server_process import Serving
from tests.terminal.upstream import scripted
from tests.web.page_server import PATIENCE, House, Person, Profile, housed
from tools.node_package import PAGE

OPERATOR = "http://operator.test"
"""Whose pages may frame the server with the demo model."""
NOT_KEPT = "[chats.scopes.gossip]\nkeep = false"

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with browsing(is_light=True) as browser:
        yield browser


@pytest.fixture(scope="package")
def operator() -> Iterator[str]:
    """The origin of somebody's pages, on another site than the server's, which may frame it."""
    with site() as port:
        yield f"http://localhost:{port}"


@pytest.fixture(scope="package")
def house(operator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    frames = f'[server]\nframe_ancestors = ["{operator}"]'
    with housed(tmp_path_factory.mktemp("house"), frames, NOT_KEPT) as house:
        yield house


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server as `turnledger serve` starts it, with nothing but the demo model; an operator may frame it."""
    built(PAGE)
    folder = tmp_path_factory.mktemp("demo")
    config = folder / "turnledger.toml"
    config.write_text(f'[server]\nframe_ancestors = ["{OPERATOR}"]\n')
    with scripted() as unused, Serving(folder, "--config", str(config)) as serving:
        yield House(serving, unused)


@pytest.fixture
def person(house: House) -> Iterator[Person]:
    """Somebody whose chats concern no other test. Scripts that the model did not play are dropped."""
    yield house.person()
    house.model.forget_scripts()


@pytest.fixture
def profile(browser: Browser) -> Iterator[Profile]:
    """Make a browser of somebody's own, in which nothing is stored but what is given. Whatever the page
    throws, or says in the console, fails the test."""
    opened: list[BrowserContext] = []
    wrong: list[str] = []

    def make(who: Person | None = None, **options: Any) -> BrowserContext:
        # What turns while somebody waits would be drawn sixty times a second, without a graphics card.
        options.setdefault("reduced_motion", "reduce")
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE * 1000)
        if who is not None:
            who.enter(context)
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        context.on("console", lambda said: wrong.append(said.text) if _is_wrong(said) else None)
        opened.append(context)
        return context

    yield make
    for context in opened:
        context.close()
    assert wrong == []


def _is_wrong(said: Any) -> bool:
    # A connection that a test cuts, or a status that it asks for, is said in the console by the browser.
    return said.type in {"error", "warning"} and "Failed to load resource" not in said.text


@pytest.fixture
def tab(person: Person, profile: Profile) -> Page:
    """The page, opened by the person."""
    page = profile(person).new_page()
    page.goto(person.house.url)
    return page
