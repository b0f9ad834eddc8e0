"""House rules: layered imports, clear names, no swallowed errors, no path or registry of one machine."""

import ast
import functools
import logging
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SCRIPT_PLACES = (ROOT / "web" / "src", ROOT / "clients" / "typescript" / "src")
SCRIPTS = sorted(path for top in SCRIPT_PLACES for path in top.rglob("*.ts*"))
SCRIPT_COLUMNS = 120
VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc"}
MODULES_IN_A_FOLDER = 20
NOUNS = {"hosting", "testing"}
"""They end like gerunds, and name things."""
SAME_NAMES = {"api": "wire", "client": "wire", "sync": "sync"}
"""The API with its client, and the blocking ledger, use the names of the library, once each."""
CALLS = re.compile(r"(?<![\w.#])fetch\(|\bXMLHttpRequest\b|\bEventSource\(|\bsendBeacon\(|\bWebSocket\(")
MAY_CALL = {"clients/typescript/src/wire.ts"}
MAY_REPORT = {"web/src/view/error-boundary.tsx"}
"""Reports the error of a view that threw."""
EXPORTED = re.compile(r"^export (?:class|interface|type|function|const) ([A-Z]\w*[a-z]\w*)", re.MULTILINE)
"""Classes, types and components, which have a capital letter first."""

CATCHES_ALL = re.compile(r"except\s*\(?\s*(:|Exception|BaseException)")

# Written with character classes so that this file does not match itself.
FOREIGN_PLACES = re.compile(r"[.][.]/shared|(?<!\w)/[w]ork/|[p]ypi\.org|[p]ythonhosted|[n]pmjs\.(org|com)")


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def swallows_everything(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    catches_all = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
    return catches_all and all(ast.unparse(statement) in {"pass", "..."} for statement in node.body)


def project_files() -> list[Path]:
    """List the files that are tracked or would be: everything that git does not ignore."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def script_lines(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for path in SCRIPTS:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if pattern.search(line):
                yield path.relative_to(ROOT).as_posix(), f"{number}: {line.strip()}"


def test_script_lines_fit_the_column_limit() -> None:
    assert len(SCRIPTS) > 100
    assert list(script_lines(re.compile(f".{{{SCRIPT_COLUMNS + 1}}}"))) == []


def test_scripts_call_the_server_only_through_the_client_and_do_not_log() -> None:
    assert {name for name, _ in script_lines(CALLS)} == MAY_CALL
    assert {name for name, _ in script_lines(re.compile(r"\bconsole\."))} == MAY_REPORT


def test_file_names_are_not_on_the_list_of_vague_names() -> None:
    tops = (ROOT / "src", ROOT / "tests", *SCRIPT_PLACES, ROOT / "web" / "test")
    paths = [path.relative_to(ROOT) for top in tops for path in top.rglob("*")]
    assert [str(path) for path in paths if path.stem in VAGUE_NAMES] == []


def product_modules() -> list[Path]:
    return list((ROOT / "src" / "turnledger").rglob("*.py"))


def test_folders_hold_at_most_the_allowed_number_of_modules() -> None:
    modules = [*product_modules(), *SCRIPTS]
    folders = Counter(path.parent for path in modules if path.stem != "__init__")
    assert {str(folder): count for folder, count in folders.items() if count > MODULES_IN_A_FOLDER} == {}


def test_module_names_are_not_gerunds() -> None:
    names = {path.stem for path in [*product_modules(), *SCRIPTS, *(ROOT / "tests").rglob("test_*.py")]}
    assert {name for name in names if name.endswith("ing")} - NOUNS == set()


def test_public_class_names_are_unique() -> None:
    homes: dict[tuple[str, str], list[str]] = {}
    for path in product_modules():
        part = SAME_NAMES.get(path.relative_to(ROOT / "src" / "turnledger").parts[0], "")
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault((part, node.name), []).append(place(path, node))
    assert {name: at for (_, name), at in homes.items() if len(at) > 1} == {}


@pytest.mark.parametrize("top", SCRIPT_PLACES, ids=["page", "client"])
def test_exported_script_type_names_are_unique(top: Path) -> None:
    homes: dict[str, list[str]] = {}
    for path in SCRIPTS:
        if path.is_relative_to(top):
            for match in EXPORTED.finditer(path.read_text("utf-8")):
                homes.setdefault(match[1], []).append(str(path.relative_to(top)))
    assert len(homes) > 20
    assert {name: at for name, at in homes.items() if len(at) > 1} == {}


def test_except_blocks_swallow_no_error() -> None:
    able = [path for path in SOURCES if CATCHES_ALL.search(path.read_text("utf-8"))]
    found = [(path, node) for path in able for node in ast.walk(parsed(path)) if swallows_everything(node)]
    assert [place(path, node) for path, node in found] == []


def test_project_files_name_no_registry_and_no_path_of_one_machine() -> None:
    found = []
    for path in project_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in FOREIGN_PLACES.finditer(text)]
    assert found == []


@pytest.fixture
def loggers_stay_on() -> Iterator[None]:
    """The linter configures logging and turns off every logger there is, for all later tests."""
    yield
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


@pytest.mark.usefixtures("loggers_stay_on")
def test_imports_follow_the_layers(capsys: pytest.CaptureFixture[str]) -> None:
    # No cache: it is stale when a module appears, and parallel workers would share it.
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
