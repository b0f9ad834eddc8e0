"""The browser of the machine. None is ever downloaded: without one there is nothing to prove."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
MISSING = "There is no Chromium here. Install it (Debian: apt-get install chromium), or name one in CHROMIUM."


def installed() -> str:
    """The path of the browser. Without one the test is skipped, but where changes are judged it fails."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return found


@contextmanager
def browsing(*rules: str) -> Iterator[Browser]:
    """A browser that finds the names of these rules (`MAP name address`) and no others."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=installed(),
            # Its own sandbox does not work for root, and protects from pages that are not ours.
            chromium_sandbox=False,
            args=[
                f"--host-resolver-rules={', '.join(rules)}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--no-proxy-server",
                "--disable-dev-shm-usage",
            ],
        )
        try:
            yield browser
        finally:
            browser.close()
