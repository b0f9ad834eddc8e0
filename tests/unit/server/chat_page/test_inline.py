"""Pages that are one answer: what their policies allow is what stands on them, to the letter."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import pytest

from turnledger.server.chat_page.built import InlinePage
from turnledger.server.routes.page import PICTURE, UNBUILT

PAGES = pytest.mark.parametrize("page", [PICTURE, UNBUILT], ids=["picture", "unbuilt"])


@PAGES
def test_the_policy_allows_its_own_script_and_style_and_nothing_else(page: InlinePage) -> None:
    policy = page.policy.decode()
    for tag in ("script", "style"):
        for inside in re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL):
            told = b64encode(sha256(inside.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{told}';" in policy
        assert (f"{tag}-src" in policy) == (f"<{tag}>" in page.text)
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'")
    assert "unsafe" not in policy


@PAGES
def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_markup(page: InlinePage) -> None:
    assert not re.findall(r"https?://|\bsrc=|\bhref=|@import|url\(|/\*(?:style|script)\*/", page.text)
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", page.text)
