"""The browser of the machine; none is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

SHELL = "chromium-headless-shell"
"""Without windows and menus, which take most of the time."""
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
MISSING = "There is no Chromium here. Install it (Debian: apt-get install chromium), or name one in CHROMIUM."
FOUND = [f"EXCLUDE {name}" for name in ("127.0.0.1", "0.0.0.0", "[::ffff:7f00:1]", "localhost", "localhost.")]
"""Names of this machine."""


def installed(*, is_light: bool = False) -> str:
    """Return the path of the browser or its headless shell. Without it tests are skipped, or fail in CI."""
    names = (SHELL, *NAMES) if is_light else NAMES
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return found


@contextmanager
def browsing(*rules: str, public: int | None = None, is_light: bool = False) -> Iterator[Browser]:
    """Start a browser that resolves only these rules (`MAP name address`). It treats the port `public` as a
    public address, and does not block requests from public pages to private ones, as older browsers do
    not."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=installed(is_light=is_light),
            # The sandbox does not work for root; all pages are ours.
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
