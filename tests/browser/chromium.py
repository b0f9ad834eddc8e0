"""The browser of the machine. None is ever downloaded: without one there is nothing to prove."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

SHELL = "chromium-headless-shell"
"""The same without windows and menus around a page, which take most of its time where nobody sees them."""
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
MISSING = "There is no Chromium here. Install it (Debian: apt-get install chromium), or name one in CHROMIUM."
FOUND = [f"EXCLUDE {name}" for name in ("127.0.0.1", "0.0.0.0", "[::ffff:7f00:1]", "localhost", "localhost.")]
"""What leads to this machine by itself."""


def installed(*, is_light: bool = False) -> str:
    """The path of the browser, or of what there is of it that only shows pages. Without one the test is
    skipped, but where changes are judged it fails."""
    names = (SHELL, *NAMES) if is_light else NAMES
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return found


@contextmanager
def browsing(*rules: str, public: int | None = None, is_light: bool = False) -> Iterator[Browser]:
    """A browser that finds the names of these rules (`MAP name address`) and no others. It takes a `public`
    port of the machine for a place in the internet, and does not keep pages of such places from the machine's
    own: browsers of all kinds and ages come by."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=installed(is_light=is_light),
            # Its own sandbox does not work for root, and protects from pages that are not ours.
            chromium_sandbox=False,
            args=[
                f"--host-resolver-rules={', '.join((*rules, 'MAP * ~NOTFOUND', *FOUND))}",
                *([] if public is None else [f"--ip-address-space-overrides=127.0.0.1:{public}=public"]),
                "--disable-features=LocalNetworkAccessChecks",
                "--no-proxy-server",
                "--disable-dev-shm-usage",
            ],
        )
        try:
            yield browser
        finally:
            browser.close()
