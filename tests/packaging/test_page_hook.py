"""Packages have the chat page in them, and its server shows it on a machine without Node."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.node_packages import built
from tests.packaging.test_node_package import Workshop
from tests.unit.server.processes import started
from tools import node_package
from tools.node_package import PAGE, ROOT
from tools.page_hook import WITHOUT, PageHook

IN_WHEEL = "turnledger/server/chat_page/dist/"
BUILD = "import sys; from hatchling import build; print(getattr(build, 'build_' + sys.argv[1])(sys.argv[2]))"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, unpacked."""
    built(PAGE)
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(made("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    [unpacked] = [path for path in folder.iterdir() if path.is_dir()]
    return unpacked


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was made of it, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(made("wheel", source, folder)) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def made(kind: str, project: Path, into: Path) -> Path:
    """Make a package where there is no Node, and where nothing can be downloaded: what builds it is here."""
    command = [sys.executable, "-c", BUILD, kind, str(into)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, env={"PATH": str(into)})
    assert done.returncode == 0, done.stderr
    return into / done.stdout.split()[-1]


def test_a_source_distribution_has_the_page_and_its_sources_and_nothing_of_others(source: Path) -> None:
    page = source / PAGE.into.relative_to(ROOT)
    assert (page / "index.html").read_bytes() == (PAGE.into / "index.html").read_bytes()
    assert (source / "web" / "src" / "main.tsx").exists()
    assert not list(source.rglob("node_modules"))
    assert not (source / "clients" / "typescript" / "dist").exists()


def test_a_wheel_shows_the_page_without_node(wheel: Path, tmp_path: Path) -> None:
    index = (wheel / IN_WHEEL / "index.html").read_text()
    assets = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', index)
    licences = (wheel / IN_WHEEL / "THIRD_PARTY_NOTICES.txt").read_text()
    for name in ("preact", "@preact/signals", "dompurify", "highlight.js", "marked"):
        assert f"\n{name} " in licences
    assert "Copyright" in licences
    assert {Path(name).suffix for name in assets} == {".js", ".css"}
    environ = {"PYTHONPATH": str(wheel), "PATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    with started("turnledger", "serve", "--port", "0", "--store", "memory:", **environ) as server:
        assert server.announced.endswith("Open it in a browser.\n")
        for name in ("", *assets):
            with urlopen(f"{server.url}/{name}", timeout=60) as answer:
                assert answer.read() == (wheel / IN_WHEEL / (name or "index.html")).read_bytes()


class Making:
    """What the hook does for a page that cannot be built, or can."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop

    def make(self, version: str = "standard") -> None:
        builder = WheelBuilder(str(ROOT))
        hook = PageHook(str(ROOT), {}, builder.config, builder.metadata, str(ROOT), "wheel", builder.app)
        hook.initialize(version, {})


@pytest.fixture
def making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Making:
    workshop = Workshop(tmp_path, monkeypatch, swaps=True)
    monkeypatch.setattr(node_package, "PAGE", workshop.package)
    return Making(workshop)


def test_it_is_built_when_a_package_is_made(making: Making) -> None:
    making.make()
    assert making.workshop.package.is_fresh


def test_without_node_there_is_no_package_but_the_remedy(
    making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit) as stopped:
        making.make()
    assert "Node 20.19 or newer" in str(stopped.value)
    assert f"{WITHOUT}=1" in str(stopped.value)


def test_who_wants_one_without_the_page_gets_it(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(WITHOUT, "1")
    making.make()
    assert not making.workshop.package.is_there


def test_who_works_on_a_clone_needs_no_page(making: Making) -> None:
    making.make("editable")
    assert not making.workshop.package.is_there
    assert making.workshop.told() == []
