"""Documents match the code: links and paths exist; every setting, flag, key, metric and code is listed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
import typer

from tests.docs.recipe import CONSOLE, ROOT
from tests.unit.server.asgi import run_app
from turnledger import errors
from turnledger.api.requests import TurnBody
from turnledger.api.turns import Branch
from turnledger.cli.chat.slash_commands import COMMANDS, KEYS
from turnledger.cli.main import app
from turnledger.engine.attempt.end import CLAIM_KEPT_MS, DELETED, DIED
from turnledger.engine.attempt.interrupted_job import EXHAUSTED, NOT_COMMITTED, UNHELD
from turnledger.engine.turn.commit import SUPERSEDED, failure_of
from turnledger.engine.turn.policies import KINDS
from turnledger.engine.turn.queue import GAVE_UP
from turnledger.server.config.file import load_settings
from turnledger.server.config.settings import (
    ChatSettings,
    ModelSettings,
    ModelTimeouts,
    ScopeSettings,
    ServerLimits,
    Settings,
)
from turnledger.server.models.title_queue import PATIENCE, QUEUE_LENGTH, TITLES_AT_ONCE
from turnledger.server.openapi.document import path_of

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "clients" / "typescript" / "README.md"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
EXTRAS = re.compile(r"pip install '?(?:turnledger|\.)(?:\[([\w,]+)\])?")
STARTED = re.compile(r"^turnledger (\w+)", re.MULTILINE)
NEEDS_SERVER = {"serve", "doctor"}
ROOMS = "bench|cli|client|engine|model|runners|server|src|stores|testing|tests|tools|web"
NAMED = re.compile(rf"(?<![\w/.-])(?:{ROOMS})/[\w/.]*\w")
"""A folder, a file, a module or a name in one, in the repository or in the package."""
BUILT = {"src/turnledger/server/chat_page/dist"}


def links_of(page: Path) -> list[tuple[Path, str]]:
    links = LINK.findall(FENCED.sub("", page.read_text()))
    parts = [link.partition("#") for link in links if not link.startswith("https://")]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parts]


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text()))
    return {heading.strip().replace(" ", "-") for heading in plain}


def test_links_of_all_pages_resolve() -> None:
    for page in PAGES:
        for path, anchor in links_of(page):
            assert path.exists(), (page, path)
            assert not anchor or anchor in anchors_of(path), (page, path, anchor)


def test_pages_are_all_reachable_from_the_readme() -> None:
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in found:
            found.add(page)
            waiting += [path for path, _ in links_of(page) if path.suffix == ".md"]
    decisions = ROOT / "docs" / "decisions"
    assert decisions in {path for path, _ in links_of(ROOT / "README.md")}
    assert [page for page in PAGES if page not in found and page.parent not in (decisions, ROOT)] == []


def test_readme_lists_every_page_of_docs() -> None:
    listed = {path for path, _ in links_of(ROOT / "README.md")}
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page not in listed] == []


def test_install_blocks_include_the_extra_their_commands_need() -> None:
    """A block of commands that installs Turnledger and starts it does so with the extra that this needs."""
    for _, block in FENCED.findall("".join(page.read_text() for page in PAGES)):
        installed = EXTRAS.search(block)
        started = set(STARTED.findall(block)) if installed else set()
        extras = set((installed[1] or "").split(",")) if installed else set()
        assert not started or extras & {"cli", "server"}, block
        assert not started & NEEDS_SERVER or "server" in extras, block


def test_decision_numbers_are_unique() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers))


def test_architecture_page_names_every_source_folder() -> None:
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


def test_paths_named_by_pages_exist() -> None:
    named = {place for page in PAGES for place in NAMED.findall(page.read_text())} - BUILT
    assert sorted(place for place in named if not is_there(place)) == []


def test_make_targets_named_by_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"^make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert named <= targets


def text_of(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def flags_of(*names: str) -> set[str]:
    """The flags of a command."""
    command = typer.main.get_command(app)
    for name in names:
        command = command.commands[name]  # type: ignore[attr-defined]
    return {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}


def shown_settings(folder: Path, toml: str) -> Settings:
    """The settings of a file that a page shows."""
    config = folder / "turnledger.toml"
    config.write_text(toml)
    environ = {"EXAMPLE_API_KEY": "secret"}
    return load_settings({}, config=config, environ=environ, config_folder=folder, data_folder=folder)


def test_settings_shown_by_pages_load(tmp_path: Path) -> None:
    shown = {
        name: re.findall(r"```toml\n(.*?)```", text_of(name), re.DOTALL)
        for name in ("server", "access", "retention", "chats", "chat-completions")
    }
    [naming] = shown["chat-completions"]
    assert len(shown_settings(tmp_path, naming).chats.named_by) == 5
    server = shown_settings(tmp_path, "".join(shown["server"]))
    assert set(server.models) == {"fast", "smart", "quick"}
    assert server.models["smart"].timeouts == ModelTimeouts(first_byte=60, total=600)
    access = shown_settings(tmp_path, "".join(shown["access"]))
    assert access.frame_ancestors == ("https://shop.example.com",)
    stored, retained = (shown_settings(tmp_path, toml).chats for toml in shown["retention"])
    assert (stored.keep, stored.scopes) == (True, {"confessional": ScopeSettings(keep=False)})
    assert (retained.restore_for, retained.retain_bytes) == (604_800, 104_857_600)
    titles, lifetimes = shown["chats"]
    kiosk = shown_settings(tmp_path, lifetimes).chats.lifetimes.of("kiosk")
    assert (kiosk.expires_after, str(kiosk.reset)) == (3600, "idle 300")
    assert shown_settings(tmp_path, titles).chats.title_model == "llama3.2"


SERVER = text_of("server")


def rows(first: str) -> dict[str, list[str]]:
    """The rows of the table of the server's page whose head begins like this, by their first cell."""
    table = SERVER[SERVER.index(f"| {first}") :].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in table]
    return {row[0].strip("` "): [cell.strip("` ") for cell in row[1:]] for row in cells}


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ("`[server]`", Settings),
        ("`[server.limits]`", ServerLimits),
        ("`[server.timeouts]`", ModelTimeouts),
        ("`[chats]`", ChatSettings),
    ],
)
def test_server_page_lists_every_setting_with_its_default(first: str, kind: type[msgspec.Struct]) -> None:
    listed = rows(first)
    fields = {field.name: field.default for field in msgspec.structs.fields(kind)}
    for apart in ("limits", "timeouts", "defaults", "models", "chats", "scopes"):
        fields.pop(apart, None)
    assert set(listed) == set(fields)
    for name, default in fields.items():
        if isinstance(default, bool) or (isinstance(default, str) and default):
            assert listed[name][0] == str(default).lower()
        elif isinstance(default, int | float):
            assert float(listed[name][0]) == default
        else:  # none, empty, or as it comes
            assert not re.match(r"\d", listed[name][0])


def test_server_page_lists_every_default_policy_with_its_values() -> None:
    listed = {name: re.findall(r"[a-z]+", cells[1]) for name, cells in rows("default | header").items()}
    assert listed == {name: [*kind] for name, kind in KINDS.items()}


def test_server_page_lists_every_flag_and_setting_of_a_model() -> None:
    assert [name for name in ModelSettings.__struct_fields__ if f"`{name}`" not in SERVER] == []
    flags = flags_of("serve")
    assert [flag for flag in flags if f"`{flag}`" not in SERVER] == []
    assert set(re.findall(r"`(--[a-z-]+)`", SERVER)) <= flags


async def test_server_page_lists_every_path_and_metric() -> None:
    async with run_app() as app:
        paths = {path_of(endpoint) for endpoint in app.endpoints}
        metrics = app.service.metrics.text().decode()
    assert {path for cell in rows("path") for path in re.findall(r"/[^`]*", cell)} == paths
    names = re.findall(r"^# HELP (\S+)", metrics, re.MULTILINE)
    real = {name for name in names if not name.endswith("_created")}
    assert set(re.findall(r"^\| `(turnledger_\w+)`", SERVER, re.MULTILINE)) == real


def test_branches_page_names_every_field() -> None:
    fields = {*TurnBody.__struct_fields__, *Branch.__struct_fields__} - {"id", "is_current", "is_running"}
    assert [name for name in fields if f"`{name}`" not in text_of("branches")] == []


def test_command_line_page_names_every_command_and_flag() -> None:
    page = text_of("command-line")
    for name in (
        "create",
        "flag",
        "list",
        "search",
        "show",
        "context",
        "jobs",
        "stop",
        "append",
        "rename",
        "pin",
        "archive",
        "delete",
        "restore",
    ):
        assert f"turnledger chats {name}" in page
        assert [flag for flag in flags_of("chats", name) if f"`{flag}`" not in page] == []


def test_command_line_page_names_every_command_key_and_flag_of_the_terminal() -> None:
    page = text_of("command-line")
    assert [each.name for each in COMMANDS if not re.search(rf"`/{each.name}\b", page)] == []
    keys = [key for named, _ in KEYS for key in re.split(", | ", named) if key != "//…"]
    assert [key for key in keys if key not in page] == []
    assert [flag for flag in flags_of("chat") if flag not in page] == []
    [pipes] = [block for block in CONSOLE.findall(page) if "| turnledger chat" in block]
    assert pipes in text_of("start")  # where they are run


def test_chats_page_states_the_title_limits_of_the_server() -> None:
    assert (TITLES_AT_ONCE, QUEUE_LENGTH, PATIENCE) == (4, 200, 60.0)
    assert "Four titles" in text_of("chats")
    assert f"{QUEUE_LENGTH} chats may wait" in text_of("chats")


SOURCES = ROOT / "web" / "src"
SHORTCUT = re.compile(r'\{ name: "(\w+)", keys: \[([^\]]*)\], where: "(\w+)" \}')
WHERE = {"writing": "in the field", "anywhere": "anywhere", "list": "in the chat list"}


def test_chat_page_lists_every_shortcut_of_the_page() -> None:
    known = SHORTCUT.findall((SOURCES / "composer" / "shortcuts.ts").read_text())
    actions = (SOURCES / "strings" / "english.ts").read_text().split("actions: {")[1].split("}")[0]
    texts = dict(re.findall(r'(\w+): "([^"]+)"', actions))
    quote = '"'
    expected = [
        f"| {keys.replace(quote, '`')} | {texts[name]} | {WHERE[where]} |" for name, keys, where in known
    ]
    assert len(expected) > 8
    page = text_of("chat-page")
    assert [row for row in expected if row not in page] == []
    rows = page.split("| keys | what they do | where |")[1].split("\n\n")[0].count("\n| `")
    assert rows == len(expected)


def test_chat_page_names_every_query_parameter() -> None:
    reading = [path.read_text() for path in SOURCES.rglob("*.ts") if "URLSearchParams" in path.read_text()]
    read = {name for text in reading for name in re.findall(r'\.get\("(\w+)"\)', text)}
    names = {"embed", "scope", "theme", "keep"}
    assert names <= read
    assert [name for name in names if f"`/?{name}=" not in text_of("chat-page")] == []


def codes_below(kind: type[errors.TurnledgerError]) -> set[str]:
    return {kind.code}.union(*(codes_below(each) for each in kind.__subclasses__()))


def test_retries_page_separates_process_failures_from_model_failures() -> None:
    page = text_of("retries")
    table = page[page.index("| code |") :].partition("\n\n")[0]
    listed = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines())))
    made = {each.code for each in (DIED, EXHAUSTED, SUPERSEDED, GAVE_UP, NOT_COMMITTED, UNHELD)}
    raised = {failure_of(each).code for each in (asyncio.CancelledError(), errors.LedgerClosed())}
    # Errors that no retry mends, or that reach no client.
    final = {"store_error", "store_corrupt", "not_a_store", "store_too_new", "unsafe_sqlite"}
    assert made | raised | codes_below(errors.StoreError) - final == listed
    rest = page.replace(table, "")
    others = codes_below(errors.ModelError) - {errors.ModelError.code} | {DELETED.code, errors.EmptyTurn.code}
    assert {each for each in others if f"`{each}`" in rest} == others
    assert not others & listed
    assert f"kept for {CLAIM_KEPT_MS // 3_600_000} hours" in page
