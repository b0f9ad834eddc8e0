"""A browser, a server that is attacked, and sites for pages, for all tests here that a process runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pytest

pytest.register_assert_rewrite("tests.browser.victim")

from playwright.sync_api import Browser, Page  # noqa: E402

from tests.browser.attacks import TOOLS  # noqa: E402
from tests.browser.chromium import browsing, installed  # noqa: E402
from tests.browser.site import Rebinding, site  # noqa: E402
from tests.browser.victim import NAMED, PATIENCE, Victim, attacked  # noqa: E402

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
def browser(sites: Sites, victim: Victim) -> Iterator[Browser]:
    own = f"MAP rebound.test:{victim.port} 127.0.0.1:{sites.rebinding.port}"
    others = [f"MAP {name} 127.0.0.1" for name in ("*.test", NAMED, "localhost", "*.localhost")]
    with browsing(own, *others) as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open a page in a window of its own, in a profile of its own."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    context.add_init_script(TOOLS)

    def visit(url: str) -> Page:
        page = context.new_page()
        page.goto(url)
        return page

    yield visit
    context.close()


def holds(told: Any, *texts: str) -> bool:
    """Whether one of the texts is anywhere in what a page was told."""
    return any(text in repr(told) for text in texts)
