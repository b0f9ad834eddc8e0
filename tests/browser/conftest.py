"""A browser, a server that is attacked, and sites for pages, for all tests here that a process runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import NamedTuple, TypeAlias

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.attacks import TOOLS
from tests.browser.chromium import browsing, installed
from tests.browser.site import Rebinding, site
from tests.browser.victim import PATIENCE, Victim, attacked

Open: TypeAlias = Callable[[str], Page]


class Sites(NamedTuple):
    """Pages by who serves them."""

    port: int
    rebinding: Rebinding

    def of(self, name: str) -> str:
        """The origin of the pages that are served under this name."""
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
    with attacked(tmp_path_factory.mktemp("attacked"), sites.of("friend.test")) as victim:
        yield victim


@pytest.fixture(scope="package")
def browser(sites: Sites) -> Iterator[Browser]:
    rebound = f"MAP rebound.test 127.0.0.1:{sites.rebinding.port}"
    with browsing(rebound, "MAP *.test 127.0.0.1", "MAP *.localhost 127.0.0.1", public=sites.port) as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open the page of a URL, in a profile that nobody has used."""
    with _profile(browser) as visit:
        yield visit


@pytest.fixture(scope="package")
def page_of(browser: Browser, sites: Sites) -> Iterator[Open]:
    """The page that is open under a name: one for all attacks that stay where they are. Each is in a window
    of its own, for pages in the background are slow."""
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
