"""Screenshots of the page for the documentation; `make screenshots` writes them to docs/images."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from playwright.sync_api import ViewportSize

from tests.web.page_server import PageServer, Profile
from tests.web.scenes import WITH_DEMO, staged
from tests.web.thread import AT

ROOT = Path(__file__).parents[2]
FOLDER = "SCREENSHOTS"
"""The variable that names where they go; without it, only some are made, and forgotten."""
LARGEST = 200_000
MODELS = ("mistral-small", "qwen3")
SHOWN = re.compile(r"!\[[^\]]*\]\((?:docs/)?images/(page-[\w-]+\.png)\)")
SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": ViewportSize(width=1200, height=760)},
    "phone": {"viewport": ViewportSize(width=390, height=780), "has_touch": True, "is_mobile": True},
}


class Picture(NamedTuple):
    scene: str
    theme: Literal["light", "dark"] = "light"
    size: str = "desktop"

    @property
    def name(self) -> str:
        return f"page-{self.scene.replace('_', '-')}-{self.theme}-{self.size}.png"


WALKS = {
    "Ada": [Picture("welcome"), Picture("vanished")],
    "Alan": [Picture("welcome", "dark", "phone")],
    "Dennis": [Picture("thread"), Picture("thread", "dark"), Picture("search")],
    "Frances": [
        Picture("thread", "light", "phone"),
        Picture("chats", "dark", "phone"),
        Picture("menu", "light", "phone"),
    ],
    "Grace": [Picture("steps", "dark"), Picture("sign_in")],
    "Hedy": [Picture("running", "dark"), Picture("queued")],
    "Joan": [Picture("failed")],
    "Karen": [Picture("failed", "dark", "phone")],
}
"""The scenes that share one page, by person."""
PICTURES = [picture for walk in WALKS.values() for picture in walk]


# The tests of accessibility stage every scene.
@pytest.mark.parametrize("name", WALKS if FOLDER in os.environ else ["Frances"])
def test_screenshots_are_taken_below_the_size_limit(
    name: str, page_server: PageServer, profile: Profile, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = Path(os.environ[FOLDER]).resolve() if FOLDER in os.environ else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    walk = WALKS[name]
    is_demo = walk[0].scene in WITH_DEMO
    person = (
        request.getfixturevalue("demo").person(owner=name)
        if is_demo
        else page_server.person(owner=name, models=MODELS)
    )
    context = profile(person, **SIZES[walk[0].size], timezone_id="UTC", locale="en-GB")
    context.clock.set_fixed_time(datetime.fromtimestamp(AT / 1000 + 3600, UTC))
    page = context.new_page()
    scenes = staged(page, person, (picture.scene for picture in walk))
    for picture, _ in zip(walk, scenes, strict=True):
        page.emulate_media(color_scheme=picture.theme)
        page.screenshot(path=folder / picture.name, caret="hide", animations="disabled")
        assert 5_000 < (folder / picture.name).stat().st_size < LARGEST


def test_documentation_shows_every_screenshot_that_is_taken() -> None:
    made = {picture.name for picture in PICTURES}
    page = set(SHOWN.findall((ROOT / "docs" / "chat-page.md").read_text()))
    readme = set(SHOWN.findall((ROOT / "README.md").read_text()))
    assert page == made
    assert len(readme) == 1
    assert readme <= made
    images = {path.name: path.stat().st_size for path in (ROOT / "docs" / "images").glob("page-*.png")}
    assert images.keys() == made, "Run `make screenshots`."
    assert max(images.values()) < LARGEST
