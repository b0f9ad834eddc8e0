"""Node builds of the chat page and the TypeScript client: built when needed, with a remedy on failure, and
packaged so that users need no Node."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests import node_packages
from tests.long_form import long_only
from tests.unit.server.processes import started
from tools import node_package
from tools.node_package import CLIENT, PAGE, ROOT, CannotBuild, NodePackage
from tools.page import main
from tools.page_hook import WITHOUT, PageHook
from turnledger.server.chat_page import files

NPM = """#!/bin/sh
echo "$*" >> "$0.log"
case "$*" in
    ci*) mkdir -p node_modules && cp package-lock.json node_modules/.package-lock.json
         cp package.json node_modules ;;
    *--outDir*) for into; do :; done; mkdir -p "$into" && cp src/* "$into" ;;
    *build) mkdir -p ../out && cp src/* ../out ;;
esac
exit ${NPM_FAILS:-0}
"""


class Workshop:
    """A package, and a Node and an npm that record their commands."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, swaps: bool) -> None:
        self._bin = folder / "bin"
        self.source = folder / "app" / "src" / "main.ts"
        for each in (self._bin, self.source.parent):
            each.mkdir(parents=True)
        self.source.write_text("first")
        (folder / "app" / "package.json").write_text("{}")
        self.lock({"node_modules/a": {"integrity": "1"}})
        self.program("npm", NPM)
        self.program("node", "#!/bin/sh\necho v20.19.0\n")
        monkeypatch.setenv("PATH", f"{self._bin}:/usr/bin:/bin")
        sources = ("src", "package.json", "package-lock.json")
        self.package = NodePackage("It", "app", sources, "out", node=(20, 19), swaps=swaps, root=folder)

    def program(self, name: str, text: str) -> None:
        path = self._bin / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def lock(self, packages: dict[str, dict[str, object]]) -> None:
        text = json.dumps({"packages": {"": {"name": "app"}, **packages}})
        (self.source.parents[1] / "package-lock.json").write_text(text)

    def take_commands(self) -> list[str]:
        """Return the commands of npm since the last call."""
        log = self._bin / "npm.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.split(" --")[0] for line in lines]

    def built(self) -> str:
        return (self.package.into / "main.ts").read_text()


@pytest.fixture(params=[False, True], ids=["in its place", "beside it"])
def workshop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch, swaps=request.param)


def test_node_package_is_installed_and_built_once(workshop: Workshop) -> None:
    assert not workshop.package.is_there
    assert [workshop.package.build(), workshop.package.build()] == [True, False]
    assert (workshop.take_commands(), workshop.built()) == (["ci", "run"], "first")
    assert workshop.package.is_fresh


def test_node_package_is_rebuilt_when_the_content_of_a_source_changes(workshop: Workshop) -> None:
    workshop.package.build()
    workshop.take_commands()
    workshop.source.touch()
    assert workshop.package.build() is False
    workshop.source.write_text("second")
    assert workshop.package.build() is True
    assert (workshop.take_commands(), workshop.built()) == (["run"], "second")


def test_node_package_is_reinstalled_when_the_lock_file_changes(workshop: Workshop) -> None:
    workshop.package.build()
    workshop.take_commands()
    workshop.lock({"node_modules/a": {"integrity": "2"}})
    workshop.package.build()
    assert workshop.take_commands() == ["ci", "run"]


def test_node_package_ignores_missing_optional_dependencies(workshop: Workshop) -> None:
    workshop.package.build()
    workshop.take_commands()
    locked = {"node_modules/a": {"integrity": "1"}, "node_modules/b": {"integrity": "3", "optional": True}}
    workshop.lock(locked)
    workshop.package.build()
    assert workshop.take_commands() == ["run"]


class BuildWorkshop(Workshop):
    """A page with a library, a build tool with a dependency of its own, and a test tool."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch, swaps=True)
        self.about = {"dependencies": {"lib": "1"}, "devDependencies": {"maker": "1", "tester": "1"}}
        (folder / "app" / "package.json").write_text(
            json.dumps({**self.about, "scripts": {"build": "maker"}})
        )
        self.write_lock("1")
        self.package = NodePackage(
            "It", "app", ("src",), "out", node=(20, 19), swaps=True, build_tools=("maker",), root=folder
        )

    def write_lock(self, integrity: str) -> None:
        packages = {
            "": self.about,
            "node_modules/lib": {"integrity": integrity},
            "node_modules/maker": {"integrity": "2", "dev": True, "dependencies": {"part": "1"}},
            "node_modules/maker/node_modules/part": {"integrity": "3", "dev": True},
            "node_modules/part": {"integrity": "4", "dev": True},
            "node_modules/tester": {
                "integrity": "5",
                "dev": True,
                "dependencies": {"part": "2", "maker": "1"},
            },
        }
        (self.source.parents[1] / "package-lock.json").write_text(json.dumps({"packages": packages}))

    def installed(self) -> dict[str, str]:
        """Return the installed packages with their hashes."""
        lock = self.package.folder / "node_modules" / ".package-lock.json"
        return {
            name.removeprefix("node_modules/"): about["integrity"]
            for name, about in json.loads(lock.read_text())["packages"].items()
            if name
        }


@pytest.fixture
def build_workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildWorkshop:
    return BuildWorkshop(tmp_path, monkeypatch)


BUILD_PACKAGES = {"lib": "1", "maker": "2", "maker/node_modules/part": "3"}


def test_node_build_installs_only_the_packages_that_it_needs(build_workshop: BuildWorkshop) -> None:
    build_workshop.package.build()
    assert build_workshop.installed() == BUILD_PACKAGES
    manifest = json.loads((build_workshop.package.folder / "node_modules" / "package.json").read_text())
    assert manifest["devDependencies"] == {"maker": "1"}
    assert {path.name for path in build_workshop.package.folder.iterdir()} == {
        *("node_modules", "package-lock.json", "package.json", "src")
    }
    build_workshop.source.write_text("second")
    build_workshop.take_commands()
    build_workshop.package.build()
    assert build_workshop.take_commands() == ["run"]


def test_node_build_after_a_changed_lock_file_installs_only_what_it_needs(
    build_workshop: BuildWorkshop,
) -> None:
    build_workshop.package.build()
    build_workshop.write_lock("6")
    build_workshop.source.write_text("second")
    build_workshop.package.build()
    assert build_workshop.installed() == {**BUILD_PACKAGES, "lib": "6"}


def test_node_build_keeps_test_tools_that_are_installed(build_workshop: BuildWorkshop) -> None:
    build_workshop.package.install()
    everything = {**BUILD_PACKAGES, "part": "4", "tester": "5"}
    assert build_workshop.installed() == everything
    build_workshop.package.build()
    assert build_workshop.take_commands() == ["ci", "run"]
    build_workshop.write_lock("6")
    build_workshop.source.write_text("second")
    build_workshop.package.build()
    assert build_workshop.installed() == {**everything, "lib": "6"}


def test_node_install_adds_the_test_tools_after_a_build(build_workshop: BuildWorkshop) -> None:
    build_workshop.package.build()
    build_workshop.take_commands()
    build_workshop.package.install()
    assert "tester" in build_workshop.installed()
    build_workshop.package.install()
    assert build_workshop.take_commands() == ["ci"]


def test_page_build_needs_neither_the_type_checker_nor_the_test_tools() -> None:
    needed = {name.rpartition("node_modules/")[2] for name in PAGE.needed()}
    assert {"vite", "rolldown", "preact", "katex"} <= needed
    assert not needed & {"typescript", "vitest", "axe-core", "happy-dom"}
    assert "tsc" not in json.loads((PAGE.folder / "package.json").read_text())["scripts"]["build"]


def test_failed_node_build_keeps_the_previous_output(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.package.build()
    workshop.source.write_text("second")
    monkeypatch.setenv("NPM_FAILS", "1")
    with pytest.raises(CannotBuild, match=r"It: npm run .*build.* failed"):
        workshop.package.build()
    assert workshop.package.is_there
    assert not workshop.package.is_fresh


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("node", "#!/bin/sh\necho v20.18.9\n", "Node 20.19 or newer to be built, not v20.18.9"),
        ("node", "#!/bin/sh\necho v18.99.0\n", "not v18.99.0"),
        ("node", "#!/bin/sh\nexit 1\n", "Node 20.19 or newer"),
    ],
)
def test_node_that_is_too_old_is_reported(name: str, text: str, message: str, workshop: Workshop) -> None:
    workshop.program(name, text)
    assert message in (workshop.package.missing or "")
    with pytest.raises(CannotBuild, match=r"Node 20\.19 or newer"):
        workshop.package.build()


def test_node_package_that_is_fresh_needs_no_node(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.package.build()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "with npm" in (workshop.package.missing or "")
    assert workshop.package.build() is False


@pytest.mark.parametrize(
    ("package", "known"),
    [
        (PAGE, {"web/src/main.tsx", "web/package-lock.json", "clients/typescript/src/index.ts"}),
        (CLIENT, {"clients/typescript/src/index.ts", "clients/typescript/package-lock.json"}),
    ],
    ids=["page", "client"],
)
def test_node_package_inputs_are_sources_and_no_build_output(package: NodePackage, known: set[str]) -> None:
    paths = {path.relative_to(ROOT).as_posix() for path in package.files()}
    assert known <= paths
    assert not [path for path in paths if "node_modules" in path or "/dist/" in path or "/page/" in path]


def test_page_build_replaces_the_folder_the_server_reads_and_no_source() -> None:
    """A build removes everything else from its folder."""
    assert PAGE.into == files.FOLDER
    assert PAGE.into not in Path(files.__file__).parents


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch, swaps=True)


def test_page_command_builds_only_outdated_pages(page: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], page.package) == 0
    assert capsys.readouterr().out == f"The chat page is built: {page.package.into}\n"
    assert main([], page.package) == 0
    assert "up to date" in capsys.readouterr().out


def test_page_if_possible_prints_progress_but_nothing_for_a_fresh_page(
    page: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    page.package.build()
    assert capsys.readouterr() == ("", "It: npm ci …\nIt: npm run build …\n")
    assert main(["--if-possible"], page.package) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("is_there", [False, True])
def test_page_if_possible_without_node_prints_one_line_and_succeeds(
    is_there: bool,
    page: Workshop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if is_there:
        page.package.build()
        page.source.write_text("changed since")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--if-possible"], page.package) == 0
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    assert ("older than its sources" if is_there else "not built; the APIs work") in output
    assert "Node 20.19 or newer" in output
    assert "make page" in output
    assert main([], page.package) == 1
    assert "Node 20.19 or newer" in capsys.readouterr().err


def test_page_if_possible_with_a_failed_build_reports_it_and_succeeds(
    page: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPM_FAILS", "1")
    assert main(["--if-possible"], page.package) == 0
    assert "failed" in capsys.readouterr().err
    assert main([], page.package) == 1


IN_WHEEL = "turnledger/server/chat_page/dist/"
BUILD = "import sys; from hatchling import build; print(getattr(build, 'build_' + sys.argv[1])(sys.argv[2]))"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, unpacked."""
    node_packages.built(PAGE)
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


@long_only
def test_source_distribution_contains_the_page_and_its_sources_only(source: Path) -> None:
    page = source / PAGE.into.relative_to(ROOT)
    assert (page / "index.html").read_bytes() == (PAGE.into / "index.html").read_bytes()
    assert (source / "web" / "src" / "main.tsx").exists()
    assert not list(source.rglob("node_modules"))
    assert not (source / "clients" / "typescript" / "dist").exists()


def test_wheel_serves_the_page_without_node(wheel: Path, tmp_path: Path) -> None:
    index = (wheel / IN_WHEEL / "index.html").read_text()
    assets = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', index)
    licences = (wheel / IN_WHEEL / "THIRD_PARTY_NOTICES.txt").read_text()
    for name in ("preact", "@preact/signals", "dompurify", "highlight.js", "katex", "marked"):
        assert f"\n{name} " in licences
    assert "Copyright" in licences
    assert {Path(name).suffix for name in assets} == {".js", ".css", ".png", ".webmanifest"}
    environ = {"PYTHONPATH": str(wheel), "PATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    with started("turnledger", "serve", "--port", "0", "--store", "memory:", **environ) as server:
        assert "Open it in a browser.\n" in server.announcement
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


def test_packaging_hook_builds_the_page(making: Making) -> None:
    making.make()
    assert making.workshop.package.is_fresh


def test_packaging_hook_without_node_stops_with_the_remedy(
    making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit) as stopped:
        making.make()
    assert "Node 20.19 or newer" in str(stopped.value)
    assert f"{WITHOUT}=1" in str(stopped.value)


def test_packaging_hook_opt_out_builds_no_page(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(WITHOUT, "1")
    making.make()
    assert not making.workshop.package.is_there


def test_packaging_hook_of_an_editable_install_builds_no_page(making: Making) -> None:
    making.make("editable")
    assert not making.workshop.package.is_there
    assert making.workshop.take_commands() == []
