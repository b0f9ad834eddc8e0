"""All pages: links lead somewhere, every page is found, and what a page starts it has installed before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.recipe import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "clients" / "typescript" / "README.md"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
EXTRAS = re.compile(r"pip install '?turnledger(?:\[([\w,]+)\])?")
STARTED = re.compile(r"^turnledger (\w+)", re.MULTILINE)
NEEDS_SERVER = {"serve", "doctor"}
ROOMS = "bench|cli|client|engine|model|runners|server|src|stores|testing|tests|tools|web"
NAMED = re.compile(rf"(?<![\w/.-])(?:{ROOMS})/[\w/.]*\w")
"""A folder, a file, a module or a name in one, in the repository or in the package."""
BUILT = {"src/turnledger/server/chat_page/dist"}


def links_of(page: Path) -> list[tuple[Path, str]]:
    told = LINK.findall(FENCED.sub("", page.read_text()))
    parts = [link.partition("#") for link in told if not link.startswith("https://")]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parts]


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text()))
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in links_of(page):
        assert path.exists(), path
        assert not anchor or anchor in anchors_of(path), (path, anchor)


def test_every_page_is_found_from_the_readme() -> None:
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in found:
            found.add(page)
            waiting += [path for path, _ in links_of(page) if path.suffix == ".md"]
    decisions = ROOT / "docs" / "decisions"
    assert decisions in {path for path, _ in links_of(ROOT / "README.md")}
    assert [page for page in PAGES if page not in found and page.parent not in (decisions, ROOT)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_started_was_installed(page: Path) -> None:
    """A block of commands that installs Turnledger and starts it does so with the extra that this needs."""
    for _, block in FENCED.findall(page.read_text()):
        installed = EXTRAS.search(block)
        started = set(STARTED.findall(block)) if installed else set()
        extras = set((installed[1] or "").split(",")) if installed else set()
        assert not started or extras & {"cli", "server"}, block
        assert not started & NEEDS_SERVER or "server" in extras, block


def test_decisions_are_numbered_once_each() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers))


def test_the_house_is_drawn_with_all_its_floors() -> None:
    picture = (ROOT / "ARCHITECTURE.md").read_text()
    source = ROOT / "src" / "turnledger"
    folders = {path.name for path in (*ROOT.iterdir(), *source.iterdir()) if any(path.glob("**/*.py"))}
    drawn = {name for name in folders if not name.startswith(".")} | {"clients/typescript", "tests/clients"}
    assert {"client", "tools"} <= drawn
    assert sorted(name for name in drawn if f"{name}/" not in picture) == []


def is_there(place: str) -> bool:
    for top in (ROOT, ROOT / "src" / "turnledger"):
        if (top / place).exists() or (top / f"{place}.py").exists():
            return True
        module, _, name = place.rpartition(".")
        path = top / f"{module}.py"
        if path.is_file() and re.search(
            rf"^(?:async )?(?:def|class) {name}\b", path.read_text(), re.MULTILINE
        ):
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_place_that_a_page_names_exists(page: Path) -> None:
    named = set(NAMED.findall(page.read_text())) - BUILT
    assert sorted(place for place in named if not is_there(place)) == []
