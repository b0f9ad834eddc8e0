"""Reference pages list every public name and no private one, with the signatures and docs of the code."""

from __future__ import annotations

import json
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict, Unpack, overload

import msgspec
import pytest
import typer

from tests.compat_real.__main__ import PARTIES
from tools.reference.__main__ import main
from tools.reference.compatibility import RESULTS
from tools.reference.markdown import prose, table
from tools.reference.pages import FOLDER, PAGES
from tools.reference.python_client import members, reachable, section
from tools.reference.python_signatures import signatures
from tools.reference.python_source import aliases, field_docs, set_when_made
from tools.reference.typescript_client import ENTRIES, SOURCES
from tools.reference.typescript_client import section as typescript_section
from tools.reference.typescript_source import declarations, exported
from turnledger.cli.main import app
from turnledger.engine.attempt import end


def test_reference_pages_match_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--check"]), capsys.readouterr().out) == (0, "")
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_compatibility_page_shows_every_client_and_server_in_its_locked_version() -> None:
    noted = {name: each["version"] for name, each in json.loads(RESULTS.read_text("utf-8")).items()}
    assert noted == {name: party.version for name, party in PARTIES.items()}


def test_command_line_reference_lists_every_command_and_option() -> None:
    page = (FOLDER / "command-line.md").read_text()

    def walk(command: Any, path: str) -> int:
        section = page[page.index(f"# {path}\n") :].partition("\n#")[0]
        options = [
            option for each in command.params if each.param_type_name == "option" for option in each.opts
        ]
        assert [option for option in options if option not in section] == []
        below = getattr(command, "commands", {})
        return len(options) + sum(walk(each, f"{path} {name}") for name, each in below.items())

    assert walk(typer.main.get_command(app), "turnledger") > 100
    serve = page[page.index("### turnledger serve\n") :].partition("\n###")[0]
    for option in ("--store URL", "--port N", "--host TEXT", "--workers N"):
        assert f"| `{option}` |" in serve


def test_library_reference_has_the_runner_the_models_and_what_a_model_must_do() -> None:
    page = (FOLDER / "library.md").read_text()
    methods = [f"### ChatModel.{name}" for name in ("complete", "stream", "models", "close")]
    for title in ("## ChatRunner", "## DemoModel", "## Upstream", "## ChatModel", *methods):
        assert f"\n{title}\n" in page


def test_outcomes_page_shows_what_a_changed_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "failed with `settle`; process died with `settle`; chat deleted and restored | – |"
    assert row in PAGES["outcomes.md"]()
    keeps = end.is_kept
    monkeypatch.setattr(
        end, "is_kept", lambda attempt, failure: failure is end.DIED or keeps(attempt, failure)
    )
    changed = PAGES["outcomes.md"]()
    assert "failed with `keep`; process died with `settle`; process died with `keep`;" in changed
    assert row not in changed


class Options(TypedDict, total=False):
    """What may be said."""

    loud: bool
    """Whether it is heard
    far away."""
    name: str


class Told(msgspec.Struct):
    """What was told."""

    text: str
    number: int = 3
    """Of the telling."""


class Base:
    def inherited(self) -> None:
        """Come from above."""


class Teller(Base):
    """Tells."""

    limit = 3

    def __init__(self, secret: object) -> None:
        self._secret = secret

    @overload
    def tell(self, text: str, *, twice: bool = ..., **options: Unpack[Options]) -> Told: ...
    @overload
    def tell(self, text: int) -> None: ...
    def tell(self, text: str | int, *, twice: bool = False, **options: Unpack[Options]) -> Told | None:
        """Tell it."""

    @property
    def last(self) -> Told:
        """The last one."""
        raise NotImplementedError

    def _hidden(self) -> None:
        pass


class AsyncTeller:
    """Tells, too."""

    async def tell(self) -> None: ...
    async def aclose(self) -> None: ...


def test_members_returns_public_members_only() -> None:
    assert [name for _, name, _ in members(Teller)] == ["limit", "tell", "last", "inherited"]


def test_reachable_follows_annotations_within_the_given_modules() -> None:
    package = ModuleType("package")
    package.__all__ = ["Teller", "PATH"]  # type: ignore[attr-defined]
    package.Teller, package.PATH = Teller, sys.path  # type: ignore[attr-defined]
    assert list(reachable(package, (__name__,))) == [Teller, Options, Told]
    assert list(reachable(package, ("elsewhere",))) == [Teller]


def test_members_leaves_out_those_of_a_named_base() -> None:
    assert [name for _, name, _ in members(Teller, without=Base)] == ["limit", "tell", "last"]


def test_library_reference_lists_inherited_methods_once() -> None:
    page = (FOLDER / "library.md").read_text()
    for heading in (
        "### Ledger.check",
        "### Chats.changes",
        "### Chat.turn",
        "## TurnOptions",
        "## LiveChange",
    ):
        assert page.count(f"{heading}\n") == 1
    assert "### Ledger.changes\n" not in page


def test_signatures_lists_every_overload() -> None:
    assert signatures("tell", Teller.tell).split("\n") == [
        "tell(text: str, *, twice: bool = …, **options: Options) -> Told",
        "tell(text: int) -> None",
    ]


def test_signatures_puts_each_parameter_of_a_long_signature_on_its_own_line() -> None:
    def ask(
        first_question: str, second_question: str, *, third_question: str = "why", on: bool = True
    ) -> None: ...

    assert signatures("ask", ask) == (
        "ask(\n    first_question: str,\n    second_question: str,\n    *,\n"
        '    third_question: str = "why",\n    on: bool = True,\n) -> None'
    )


def test_field_docs_reads_the_string_below_a_field() -> None:
    assert field_docs(Options) == {"loud": "Whether it is heard\nfar away."}
    assert "| `number` | `int = 3` | Of the telling. |" in section(Told, [])
    assert "| `loud` | `bool` | Whether it is heard far away. |" in section(Options, [])


class Colour(Enum):
    """Of things."""

    RED = "red"  # as blood
    BLUE = "blue"
    """As the sky."""

    @property
    def is_warm(self) -> bool:
        """Whether it is."""
        return self is Colour.RED


def test_section_of_an_enum_lists_its_values_first_with_their_comments() -> None:
    text = section(Colour, [])
    rows = [line for line in text.split("\n") if line.startswith("| `")]
    assert rows == [
        '| `RED` | `"red"` | as blood |',
        '| `BLUE` | `"blue"` | As the sky. |',
        "| `is_warm` | `bool` | Whether it is. |",
    ]


class Made:
    def __init__(self, count: int) -> None:
        self.teller = Teller(count)
        """Who tells."""
        self.count: int = count
        self.both = count + 1
        self._secret = 1


def test_attributes_assigned_in_init_are_listed_as_public() -> None:
    assert list(set_when_made(Made)) == [
        ("teller", "Teller", "Who tells."),
        ("count", "int", ""),
        ("both", "", ""),
    ]


def test_aliases_returns_type_aliases_with_their_docs() -> None:
    stands_for, doc = aliases("turnledger.client")["Input"]
    assert stands_for.startswith("str | ")
    assert doc.startswith("A text, or items")


def test_section_of_a_class_lists_its_members_without_the_constructor() -> None:
    text = section(Teller, [])
    assert "secret" not in text
    assert "_hidden" not in text
    for part in (
        "## Teller\n",
        "### Teller.tell\n",
        "### Teller.inherited\n",
        "| `last` | `Told` | The last one. |",
    ):
        assert part in text


def test_section_of_an_async_twin_lists_only_the_differences() -> None:
    text = section(AsyncTeller, [Teller, AsyncTeller])
    assert "The members of [Teller](#teller), for asyncio. It alone has `aclose`." in text
    assert "It has no `inherited`, `last`, `limit`." in text


def test_prose_joins_paragraph_lines_and_keeps_lists() -> None:
    assert prose("One\ntwo.\n\n- a\n- b\n\nThree\nfour.") == "One two.\n\n- a\n- b\n\nThree four."
    assert table(["a", "b"], [("x|y", "one\ntwo")]).endswith("| x\\|y | one two |\n")


TYPESCRIPT = """import { x } from "./x.js";

/** How it is told. */
export type Told =
  | { readonly type: "a" }
  | {
      readonly type: "b";
    };

const hidden = 1;

/**
 * Tells
 * things.
 */
export class Teller<Thing> extends Base {
  readonly #secret: string;
  /** So many. */
  readonly limit: number = 3;
  private inner = new Map<string, () => void>();

  constructor(secret: string) {
    super();
    this.#secret = secret;
  }

  /** The last one. */
  get last(): Thing | null {
    return null;
  }

  /** Tell it. */
  tell(thing: Thing, options: { twice: true }): Promise<Thing>;
  tell(
    thing: Thing,
    options?: Options,
  ): Promise<void>;
  async tell(thing: Thing, options: Options = {}): Promise<Thing | void> {
    if (options.twice) {
      other(thing);
    }
  }

  /** @internal */
  within(): void {}

  async *[Symbol.asyncIterator](): AsyncGenerator<Thing> {
    yield* this.all();
  }

  override async next(): Promise<Thing> {
    return this.first;
  }

  declare readonly said: string;

  #really(): void {}
}

export interface Options {
  /** Once more. */
  readonly twice?: boolean;
  known?(): void;
}

export class Failed extends Error {}

/** Do it. */
export async function tell(
  thing: string,
): Promise<void> {
  return;
}
"""


def test_declarations_reads_exported_typescript_with_members_and_docs() -> None:
    found = {each.name: each for each in declarations(TYPESCRIPT)}
    assert list(found) == ["Told", "Teller", "Options", "Failed", "tell"]
    assert found["Told"].declared.endswith('readonly type: "b";\n    }')
    assert found["Teller"].declared == "class Teller<Thing> extends Base"
    assert found["Teller"].description == "Tells\nthings."
    assert found["tell"].declared == "async function tell(\n  thing: string,\n): Promise<void>"
    assert found["Failed"].members == []
    assert [(each.name, each.declared) for each in found["Teller"].members] == [
        ("limit", "readonly limit: number"),
        ("constructor", "constructor(secret: string)"),
        ("last", "get last(): Thing | null"),
        ("tell", "tell(thing: Thing, options: { twice: true }): Promise<Thing>"),
        ("tell", "tell(\n  thing: Thing,\n  options?: Options,\n): Promise<void>"),
        ("[Symbol.asyncIterator]", "async *[Symbol.asyncIterator](): AsyncGenerator<Thing>"),
        ("next", "async next(): Promise<Thing>"),
        ("said", "readonly said: string"),
    ]
    assert [(each.name, each.is_method, each.description) for each in found["Options"].members] == [
        ("twice", False, "Once more."),
        ("known", True, ""),
    ]


def test_typescript_reference_defines_every_type_that_it_uses() -> None:
    listed = [each for entry in ENTRIES for each in exported(entry)]
    source = "\n".join(path.read_text("utf-8") for path in SOURCES.glob("*.ts"))
    types = re.findall(r"^(?:export )?(?:abstract )?(?:class|interface|type) (\w+)", source, re.MULTILINE)
    code = re.findall(r"```ts\n.*?```|`[^`\n]+`", "\n".join(map(typescript_section, listed)), re.DOTALL)
    used = set(types) & set(re.findall(r"\w+", " ".join(code)))
    assert used - {each.name for each in listed} == set()


def test_typescript_section_lists_the_members_of_a_class() -> None:
    teller = next(each for each in declarations(TYPESCRIPT) if each.name == "Teller")
    text = typescript_section(teller)
    assert "| `limit` | `number` | So many. |" in text
    assert "| `last` | `Thing \\| null` | The last one. |" in text
    assert text.count("### Teller.tell\n") == 1


@pytest.mark.parametrize(
    "line", ['export { Teller, type Options } from "./teller.js";', 'export * from "./teller.js";']
)
def test_exported_follows_reexports_of_an_index(tmp_path: Path, line: str) -> None:
    (tmp_path / "teller.ts").write_text(TYPESCRIPT)
    (tmp_path / "index.ts").write_text(f'{line}\n\nexport const VERSION: string = "1";\n')
    names = [each.name for each in exported(tmp_path / "index.ts")]
    assert {"Teller", "Options", "VERSION"} <= set(names)
    assert ("Failed" in names) is ("*" in line)


def test_exported_names_of_a_namespace_export_carry_the_namespace(tmp_path: Path) -> None:
    (tmp_path / "teller.ts").write_text(TYPESCRIPT)
    (tmp_path / "index.ts").write_text('export * as telling from "./teller.js";\n')
    assert "telling.Failed" in [each.full_name for each in exported(tmp_path / "index.ts")]
