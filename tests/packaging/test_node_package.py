"""Packages that Node builds: installed and built when there is a reason to, with a remedy if that fails."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tools.node_package import CLIENT, PAGE, ROOT, CannotBuild, NodePackage
from turnledger.server.chat_page import built

NPM = """#!/bin/sh
echo "$*" >> "$0.log"
case "$*" in
    ci*) mkdir -p node_modules && cp package-lock.json node_modules/.package-lock.json ;;
    *--outDir*) for into; do :; done; mkdir -p "$into" && cp src/* "$into" ;;
    *build) mkdir -p ../out && cp src/* ../out ;;
esac
exit ${NPM_FAILS:-0}
"""


class Workshop:
    """A package, and a Node and an npm that note what they are told."""

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

    def told(self) -> list[str]:
        """What npm was told since this was asked last."""
        log = self._bin / "npm.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.split(" --")[0] for line in lines]

    def built(self) -> str:
        return (self.package.into / "main.ts").read_text()


@pytest.fixture(params=[False, True], ids=["in its place", "beside it"])
def workshop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch, swaps=request.param)


def test_it_is_installed_and_built_once(workshop: Workshop) -> None:
    assert not workshop.package.is_there
    assert [workshop.package.build(), workshop.package.build()] == [True, False]
    assert (workshop.told(), workshop.built()) == (["ci", "run"], "first")
    assert workshop.package.is_fresh


def test_it_is_built_again_when_a_source_is_another_whatever_its_time(workshop: Workshop) -> None:
    workshop.package.build()
    workshop.told()
    workshop.source.touch()
    assert workshop.package.build() is False
    workshop.source.write_text("second")
    assert workshop.package.build() is True
    assert (workshop.told(), workshop.built()) == (["run"], "second")


def test_it_is_installed_again_when_the_lock_file_wants_something_else(workshop: Workshop) -> None:
    workshop.package.build()
    workshop.told()
    workshop.lock({"node_modules/a": {"integrity": "2"}})
    workshop.package.build()
    assert workshop.told() == ["ci", "run"]


def test_what_only_other_machines_need_is_not_missed(workshop: Workshop) -> None:
    workshop.package.build()
    workshop.told()
    locked = {"node_modules/a": {"integrity": "1"}, "node_modules/b": {"integrity": "3", "optional": True}}
    workshop.lock(locked)
    workshop.package.build()
    assert workshop.told() == ["run"]


def test_what_fails_leaves_what_was_there_and_tells_why(
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
    ("name", "text", "told"),
    [
        ("node", "#!/bin/sh\necho v20.18.9\n", "Node 20.19 or newer to be built, not v20.18.9"),
        ("node", "#!/bin/sh\necho v18.99.0\n", "not v18.99.0"),
        ("node", "#!/bin/sh\nexit 1\n", "Node 20.19 or newer"),
    ],
)
def test_a_node_that_is_too_old_is_told(name: str, text: str, told: str, workshop: Workshop) -> None:
    workshop.program(name, text)
    assert told in (workshop.package.missing or "")
    with pytest.raises(CannotBuild, match=r"Node 20\.19 or newer"):
        workshop.package.build()


def test_without_node_what_is_fresh_is_good_enough(
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
def test_ours_are_built_of_their_sources_and_of_nothing_that_was_built(
    package: NodePackage, known: set[str]
) -> None:
    paths = {path.relative_to(ROOT).as_posix() for path in package.files()}
    assert known <= paths
    assert not [path for path in paths if "node_modules" in path or "/dist/" in path or "/page/" in path]


def test_page_build_replaces_the_folder_the_server_reads_and_no_source() -> None:
    """A build removes everything else from its folder."""
    assert PAGE.into == built.FOLDER
    assert PAGE.into not in Path(built.__file__).parents
