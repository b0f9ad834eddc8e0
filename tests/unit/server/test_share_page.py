"""The page of share links: what its policy allows is what stands on it, to the letter."""

import re
from base64 import b64encode
from hashlib import sha256

from turnledger.server.share_page import PAGE_TEXT, POLICY


def test_the_policy_allows_its_own_script_and_style_and_nothing_else() -> None:
    policy = POLICY.decode()
    for tag in ("script", "style"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", PAGE_TEXT, re.DOTALL)
        told = b64encode(sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{told}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_markup() -> None:
    assert not re.findall(r"https?://|\bsrc=|\bhref=|@import|url\(", PAGE_TEXT)
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", PAGE_TEXT)


def test_the_code_is_taken_from_the_address_before_anything_is_asked() -> None:
    assert PAGE_TEXT.index("history.replaceState") < PAGE_TEXT.index("fetch(")
