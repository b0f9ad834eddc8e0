"""Policy of the page: own host only, client only, no dialogs, bounded size. Its unit tests and types pass."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Request, expect

from tests.long_form import long_only
from tests.node_packages import built, skip_or_fail
from tests.web.page_server import PageServer, Person, Profile
from tools.node_package import PAGE

ROOT = Path(__file__).parents[2]

LARGEST = 150_000
"""Bytes of everything that a browser loads, compressed."""

NETWORK_CALL = re.compile(
    r"\bfetch\s*\(|\bXMLHttpRequest\b|\bEventSource\b|\bWebSocket\b|\bsendBeacon\b|\bimportScripts\b"
)

SECURE = re.compile(r"crypto\.(?:randomUUID|subtle)\b")

MODAL = re.compile(r"(?<![.\w])(?:alert|confirm|prompt)\s*\(|window\.(?:alert|confirm|prompt)\b")
"""Not `showModal` of a dialog element, which a sandbox without `allow-modals` does not forbid."""

REMOTE = (
    "![far](https://far.example/image.png) [away](https://far.example/) <img src=https://far.example/2.png>"
)


def sources(kinds: tuple[str, ...] = (".ts", ".tsx")) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "web" / "src").rglob("*")):
        if path.suffix in kinds:
            yield path.relative_to(ROOT).as_posix(), path.read_text()


@pytest.mark.parametrize(
    ("forbidden", "why"),
    [
        pytest.param(NETWORK_CALL, "only the client calls the server", id="network"),
        pytest.param(SECURE, "pages that come by plain http have none", id="secure"),
        pytest.param(MODAL, "a webview may forbid it, and then nothing can be confirmed", id="modal"),
    ],
)
def test_page_sources_contain_no_forbidden_call(forbidden: re.Pattern[str], why: str) -> None:
    found = [f"{path}: {hit[0]} ({why})" for path, text in sources() for hit in forbidden.finditer(text)]
    assert found == []


def test_forbidden_call_patterns_match_forbidden_calls_only() -> None:
    for text in ('await fetch("/")', "new EventSource(url)", "navigator.sendBeacon(url)"):
        assert NETWORK_CALL.search(text)
    assert SECURE.search("crypto.randomUUID()")
    for text in ('if (confirm("Sure?"))', "window.alert"):
        assert MODAL.search(text)
    for text in ("dialog.showModal()", "this.confirm()", "prefetch", "refetch(", "onConfirm("):
        assert not MODAL.search(text)


def test_styles_use_logical_instead_of_left_and_right_properties() -> None:
    """Where lines run from the right, what is named by its side is on the wrong one."""
    sided = re.compile(
        r"(?<!area-)\b(?:margin|padding|border|inset)-(?:left|right)\b|\sfloat:\s*(?:left|right)"
    )
    found = [f"{path}: {hit[0]}" for path, text in sources((".css",)) for hit in sided.finditer(text)]
    assert found == []


LARGEST_ON_DEMAND = {
    "katex": 90_000,
    "german": 10_000,
    "admin-dialog": 5_000,
    "chat-settings-dialog": 2_000,
    "settings-dialog": 3_000,
    "share-dialog": 3_000,
    "tags-dialog": 2_000,
}
"""Bytes of the chunks that only some visits need, compressed."""


def test_built_page_stays_below_its_size_limit() -> None:
    built(PAGE)
    files = [path for path in PAGE.into.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in files}
    assert any(name.endswith(".js") for name in sizes)
    for chunk, largest in LARGEST_ON_DEMAND.items():
        names = [each for each in sizes if each.startswith(f"{chunk}-")]
        assert any(each.endswith(".js") for each in names), chunk
        assert sum(sizes.pop(each) for each in names) < largest, chunk
    assert sum(sizes.values()) < LARGEST, sizes


def test_page_contacts_only_its_own_host(person: Person, profile: Profile) -> None:
    requests: list[Request] = []
    context = profile(person)
    context.on("request", lambda request: requests.append(request))
    person.server.model.add_script(REMOTE)
    chat = person.run_turn("Show me")["chat"]["id"]
    page = context.new_page()
    answer = page.goto(f"{person.server.url}/#{chat}")
    expect(page.get_by_role("log")).to_contain_text("away")
    page.get_by_role("textbox", name="Message").fill("And more")
    page.keyboard.press("Enter")
    expect(page.get_by_role("log")).to_contain_text("Well.")
    hosts = {urlsplit(each.url).netloc for each in requests if not each.url.startswith("data:")}
    assert hosts == {urlsplit(person.server.url).netloc}
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"):
        assert f"{rule};" in f"{policy};"
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy


def test_content_security_policy_blocks_a_script_added_to_the_page(
    page_server: PageServer, browser: Browser
) -> None:
    """That the policy is in force is seen by what it keeps from happening."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(page_server.url)
    refused = page.evaluate(
        """() => {
          try { document.createElement("script").src = "https://far.example/script.js"; }
          catch (problem) { return problem.message; }
        }"""
    )
    context.close()
    assert "TrustedScriptURL" in refused


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def package() -> Path:
    folder = built(PAGE)
    # A page that was built elsewhere needs no Node; its tests do.
    if PAGE.missing is not None or not (folder / "node_modules").is_dir():
        skip_or_fail(PAGE.missing or "The packages of the page are not installed. Run `npm ci` in web/.")
    return folder


def run(package: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return COLOURS.sub("", done.stdout)


def test_page_unit_tests_pass(package: Path) -> None:
    output = run(package, "npm", "--silent", "test")
    count = re.search(r"^ *Tests +(\d+) passed \(\1\)$", output, re.MULTILINE)
    assert count is not None, output
    assert int(count[1]) > 400


@long_only
def test_page_type_check_passes(package: Path) -> None:
    run(package, "npm", "--silent", "run", "types")
