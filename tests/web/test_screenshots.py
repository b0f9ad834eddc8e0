"""Pictures of the page, as the documentation shows them: `make screenshots` writes them to docs/images."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from playwright.sync_api import ViewportSize

from tests.node_packages import built
from tests.terminal.serving import Serving
from tests.terminal.upstream import scripted
from tests.web.chatting import AT
from tests.web.house import House, Profile
from tests.web.scenes import WITH_DEMO, staged
from tools.node_package import PAGE

ROOT = Path(__file__).parents[2]
FOLDER = "SCREENSHOTS"
"""The variable that names where they go; without it, they are made and forgotten."""
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


PICTURES = [
    Picture("welcome"),
    Picture("welcome", "dark", "phone"),
    Picture("vanished"),
    Picture("thread"),
    Picture("thread", "dark"),
    Picture("thread", "light", "phone"),
    Picture("steps", "dark"),
    Picture("running", "dark"),
    Picture("queued"),
    Picture("failed"),
    Picture("failed", "dark", "phone"),
    Picture("search"),
    Picture("chats", "dark", "phone"),
    Picture("menu", "light", "phone"),
    Picture("sign_in"),
]

NAMES = ["Ada", "Alan", "Barbara", "Dennis", "Edsger", "Frances", "Grace", "Hedy", "Jean", "Joan", "Karen"]
NAMES += ["Leslie", "Margaret", "Mary", "Niklaus"]
"""Somebody for each: nobody is in the picture of another."""


@pytest.fixture(scope="module")
def restaurant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server whose models have names that one reads every day."""
    built(PAGE)
    folder = tmp_path_factory.mktemp("restaurant")
    with scripted() as model:
        config = folder / "turnledger.toml"
        config.write_text("".join(f'[models."{name}"]\nupstream = "{model.url}"\n' for name in MODELS))
        with Serving(folder, "--config", str(config)) as serving:
            yield House(serving, model)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_made(
    picture: Picture,
    restaurant: House,
    profile: Profile,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    folder = Path(os.environ[FOLDER]).resolve() if FOLDER in os.environ else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    home: House = request.getfixturevalue("demo") if picture.scene in WITH_DEMO else restaurant
    person = home.person(owner=NAMES[PICTURES.index(picture)])
    context = profile(
        person,
        **SIZES[picture.size],
        color_scheme=picture.theme,
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
    )
    context.clock.set_fixed_time(datetime.fromtimestamp(AT / 1000 + 3600, UTC))
    with staged(picture.scene, context.new_page(), person) as scene:
        path = folder / picture.name
        scene.page.screenshot(path=path, caret="hide", animations="disabled")
    assert 5_000 < path.stat().st_size < LARGEST


def test_the_documentation_shows_what_is_made_here_and_all_of_it() -> None:
    made = {picture.name for picture in PICTURES}
    page = set(SHOWN.findall((ROOT / "docs" / "page.md").read_text()))
    readme = set(SHOWN.findall((ROOT / "README.md").read_text()))
    assert page == made
    assert 2 <= len(readme) <= 6
    assert readme <= made
    images = {path.name: path.stat().st_size for path in (ROOT / "docs" / "images").glob("page-*.png")}
    assert images.keys() == made, "Run `make screenshots`."
    assert max(images.values()) < LARGEST
