"""Everybody can use the page: axe finds nothing wrong in any of its states, and no mouse is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, ViewportSize

from tests.web.axe import violations
from tests.web.house import House
from tests.web.scenes import SCENES, WITH_DEMO, staged

Profile = Callable[..., BrowserContext]
SIZES = {"desktop": ViewportSize(width=1280, height=800), "phone": ViewportSize(width=390, height=844)}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
NOT_ON_PHONES = {"shortcuts"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_wrong_in_any_state(
    name: str, size: str, house: House, profile: Profile, request: pytest.FixtureRequest
) -> None:
    if size == "phone" and name in NOT_ON_PHONES:
        pytest.skip("There are no keys to learn of on a phone.")
    person = (request.getfixturevalue("demo") if name in WITH_DEMO else house).person()
    with staged(name, profile(person, viewport=SIZES[size]).new_page(), person) as scene:
        for theme in THEMES:
            scene.page.emulate_media(color_scheme=theme)
            assert violations(scene.page) == [], theme
