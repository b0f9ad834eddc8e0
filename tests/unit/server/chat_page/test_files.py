"""Files of the built chat page, and inline pages whose policy allows exactly their own script and style."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.server.fake_page import ASSET, FILES, PAGE
from turnledger.server.chat_page.files import POLICY, BuiltPage, InlinePage
from turnledger.server.routes.page import PICTURE_PAGE, UNBUILT_PAGE


def test_built_page_reads_its_folder_once_with_all_subfolders(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    page = BuiltPage.read(tmp_path)
    (tmp_path / "index.html").write_bytes(b"changed since")
    assert page.index is not None
    assert page.index.content == FILES["index.html"]
    assert page.assets.keys() == {name.removeprefix("assets/") for name in FILES if "/" in name}


def test_built_page_without_a_folder_has_no_files(tmp_path: Path) -> None:
    page = BuiltPage.read(tmp_path / "nothing")
    assert (page.index, page.icon, page.assets) == (None, None, {})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (ASSET, "text/javascript; charset=utf-8"),
        ("index-Cd34.css", "text/css; charset=utf-8"),
        ("letters-Ef56.woff2", "font/woff2"),
        ("whatever-Gh78.bin", "application/octet-stream"),
    ],
)
def test_built_page_file_has_the_content_type_of_its_extension(name: str, kind: str) -> None:
    assert PAGE.assets[name].kind == kind


def test_built_page_compresses_files_that_shrink_and_gives_them_their_own_tag() -> None:
    script, style, font = (PAGE.assets[name] for name in (ASSET, "index-Cd34.css", "letters-Ef56.woff2"))
    assert script.packed is not None
    assert gzip.decompress(script.packed) == script.content
    assert script.packed_tag != script.tag
    assert (style.packed, font.packed) == (None, None)  # too short; compressed already


def test_chat_page_policy_allows_only_its_own_server_and_files() -> None:
    allowed = dict(each.split(" ", 1) for each in POLICY.decode().split("; "))
    assert allowed.pop("default-src") == "'none'"
    assert {name: allowed[name] for name in ("script-src", "style-src", "connect-src", "frame-src")} == {
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "frame-src": "'self'",
    }
    assert allowed["img-src"] == "'self' data: blob:"
    assert allowed["require-trusted-types-for"] == "'script'"
    assert not any(word in POLICY.decode() for word in ("unsafe", "http", "*"))


PAGES = pytest.mark.parametrize("page", [PICTURE_PAGE, UNBUILT_PAGE], ids=["picture", "unbuilt"])


@PAGES
def test_inline_page_policy_allows_exactly_its_own_script_and_style(page: InlinePage) -> None:
    policy = page.policy.decode()
    for tag in ("script", "style"):
        for inside in re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL):
            digest = b64encode(sha256(inside.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}';" in policy
        assert (f"{tag}-src" in policy) == (f"<{tag}>" in page.text)
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'")
    assert "unsafe" not in policy


@PAGES
def test_inline_page_loads_no_external_resource_and_sets_no_html(page: InlinePage) -> None:
    assert not re.findall(r"https?://|\bsrc=|\bhref=|@import|url\(|/\*(?:style|script)\*/", page.text)
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", page.text)
