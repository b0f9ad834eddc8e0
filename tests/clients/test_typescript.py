"""The TypeScript package: it compiles, passes its tests, stays small, and has every error class."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.typescript_package import PACKAGE, built
from tests.unit.server.processes import ServerProcess, started
from turnledger import errors
from turnledger.client.errors import PROCESS_CODES

MOST_BYTES = 9216
TALK = """
import { Client, errors } from "./dist/turnledger.min.js";
const client = new Client(process.argv[1]);
const chat = await client.chats.create({ title: "Small" });
const events = [];
const stream = chat.send("One two three", { stream: true, onStop: "keep" });
for await (const event of stream) events.push(event.type);
const answer = await stream.answer();
const [listed] = await client.chats.list().all();
let refused = null;
try { await chat.undo({ turn: "turn_" + "0".repeat(32) }); } catch (problem) { refused = problem.name; }
const lines = [];
for await (const line of chat.export()) lines.push(line);
const shown = [answer.text, stream.turnId === answer.turn.id, listed.title, listed.turnCount, refused];
console.log(JSON.stringify([...shown, events[0], events.at(-1), lines.length > 0]));
"""
ANSWER = 'You said "One two three". I remember nothing before that.'
UNKEPT = """
import { UnkeptChat } from "./dist/src/unkept.js";
const chat = new UnkeptChat(process.argv[1]);
const send = async (text, options) => {
  let whole = "";
  for await (const event of chat.send(text, options)) if (event.type === "text.delta") whole += event.text;
  return whole;
};
const answers = [await send("One two three"), await send("More")];
let refused = null;
try { await send("/fail after 2"); } catch (problem) { refused = problem.name; }
const count = chat.messages.length;
for await (const event of chat.send("/slow Count", { onStop: "keep" })) break;
const listed = await fetch(process.argv[1] + "/api/chats").then((answer) => answer.json());
console.log(JSON.stringify([answers, refused, count, chat.messages.at(-1), listed.data]));
"""
PAUSED = """
import { Client, freshKey } from "./dist/src/index.js";
const states = [];
const client = new Client(process.argv[1], { onConnection: (isLost) => states.push(isLost) });
const stream = client.chats.open({ conversationKey: freshKey() }).send("/count 60", { stream: true });
const texts = [];
for await (const event of stream) {
  if (event.type === "text.delta") texts.push(event.text);
  if (texts.length % 7 === 3) {
    stream.pause();
    queueMicrotask(() => stream.resume());
  }
  if (texts.length % 7 === 5) client.reconnect();
}
const answer = await stream.answer();
const isSame = texts.join("") === answer.text && stream.text === answer.text;
const isNamed = (await stream.begun) === answer.turn.id;
console.log(JSON.stringify([texts.length, isSame, isNamed, states.length % 2]));
"""
NOT_SENT = {"TurnReplayed", "TurnAttached", "NotAStore", "StoreTooNew", "UnsafeSqlite"}
"""Errors that no server sends: it answers with the turn instead, or has not started."""
TREE = """
const tree = ({ errors }) => {
  const named = Object.fromEntries([["Error", Error], ...Object.entries(errors)]);
  const above = (kind) => Object.keys(named).find((name) => named[name] === Object.getPrototypeOf(kind));
  return Object.fromEntries(Object.entries(errors).map(([name, kind]) => [name, above(kind)]));
};
const files = ["./dist/src/index.js", "./dist/turnledger.min.js"];
console.log(JSON.stringify((await Promise.all(files.map((file) => import(file)))).map(tree)));
"""


@pytest.fixture(scope="module")
def package() -> Path:
    return built()


@pytest.fixture(scope="module")
def size(package: Path) -> dict[str, int]:
    """The sizes of the small file, which is there from then on."""
    sizes: dict[str, int] = json.loads(run(package, "npm", "--silent", "run", "size"))
    return sizes


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        yield server


def script(package: Path, text: str, *arguments: str) -> Any:
    """What a program prints."""
    return json.loads(run(package, "node", "--input-type=module", "-e", text, *arguments))


def run(package: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_typescript_tests_pass(package: Path) -> None:
    files = sorted(path.name for path in (package / "dist" / "test").glob("*.test.js"))
    script = "".join(
        f'await import("./dist/test/{name}");' for name in files
    )  # `npm test` starts a process each
    output = run(package, "node", "--input-type=module", "-e", script)
    count = re.search(r"^(?:#|ℹ) pass (\d+)$", output, re.MULTILINE)
    assert count is not None
    assert int(count[1]) > 120


def test_typescript_bundle_is_small_and_complete(
    package: Path, size: dict[str, int], server: ServerProcess
) -> None:
    assert size["gzipped"] < MOST_BYTES
    output = script(package, TALK, server.url)
    assert output == [ANSWER, True, "Small", 1, "InvalidId", "turn.started", "turn.finished", True]


def test_typescript_unkept_chat_keeps_its_own_history(package: Path) -> None:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        output = script(package, UNKEPT, server.url)
    more = 'You said "More". I remember 1 message from you before that, the last one "One two three".'
    assert output == [[ANSWER, more], "ModelUnavailable", 4, {"role": "assistant", "content": "You"}, []]


def test_typescript_stream_paused_and_reconnected_repeatedly_yields_events_once(
    package: Path, server: ServerProcess
) -> None:
    assert script(package, PAUSED, server.url) == [60, True, True, 0]


def test_typescript_unused_code_is_not_bundled(package: Path) -> None:
    script = 'import { textOf } from "./dist/src/index.js"; console.log(textOf([]))'
    bundled = subprocess.run(
        ["npx", "--no-install", "esbuild", "--bundle", "--minify", "--format=esm"],
        input=script, cwd=package, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert len(bundled.stdout) < 400


def test_typescript_errors_match_the_python_error_tree(package: Path, size: dict[str, int]) -> None:
    def below(kind: type[errors.TurnledgerError]) -> dict[str, str]:
        here = {
            each.__name__: kind.__name__
            for each in kind.__subclasses__()
            if each.__module__ == kind.__module__
        }
        return here | {name: parent for each in kind.__subclasses__() for name, parent in below(each).items()}

    tree = below(errors.TurnledgerError)
    assert tree.keys() > NOT_SENT
    expected = {"TurnledgerError": "Error", **{name: tree[name] for name in tree if name not in NOT_SENT}}
    assert script(package, TREE) == [expected, expected]


def test_error_code_is_the_snake_case_name_of_its_class() -> None:
    """The client finds the class of a code by that."""

    def check(kind: type[errors.TurnledgerError]) -> None:
        for each in kind.__subclasses__():
            if each.__module__ == kind.__module__:
                assert each.code == re.sub(r"\B([A-Z])", r"_\1", each.__name__).lower()
                check(each)

    check(errors.TurnledgerError)


def test_python_and_typescript_retry_after_the_same_failures() -> None:
    source = (PACKAGE / "src" / "turn-follower.ts").read_text()
    listed = re.search(r"PROCESS_CODES = \[(.*?)\]", source, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == PROCESS_CODES


def test_typescript_package_has_only_build_dependencies(package: Path) -> None:
    described: dict[str, Any] = json.loads((package / "package.json").read_text())
    assert set(described["devDependencies"]) == {"typescript", "esbuild"}
    assert "dependencies" not in described
    assert described["sideEffects"] is False
    assert f'version = "{described["version"]}"' in (PACKAGE.parents[1] / "pyproject.toml").read_text()
    assert "://" not in (package / "package-lock.json").read_text()


def test_typescript_package_contains_all_its_exports(package: Path, size: dict[str, int]) -> None:
    [packed] = json.loads(run(package, "npm", "pack", "--dry-run", "--json", "--ignore-scripts"))
    files = {f"./{each['path']}" for each in packed["files"]}
    exports = json.loads((package / "package.json").read_text())["exports"].values()
    named = {path for each in exports for path in (each.values() if isinstance(each, dict) else [each])}
    assert len(named) == 7
    assert named <= files
    assert not [path for path in files if "/test" in path or "node_modules" in path]


def test_typescript_sources_use_no_node_api(package: Path) -> None:
    sources = [path.read_text() for path in (package / "src").glob("*.ts")]
    assert sources
    assert not [each for each in sources if re.search(r"node:|process\.|Buffer|require\(", each)]


def test_typescript_message_of_a_killed_program_is_sent_once(
    package: Path, server: ServerProcess, tmp_path: Path
) -> None:
    program, box = str(package / "dist" / "test" / "killed-sender.js"), str(tmp_path / "unsent")
    killed = subprocess.run(["node", program, server.url, box, "send"], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    output = json.loads(run(package, "node", program, server.url, box, "resend"))
    assert output == {"answers": [ANSWER], "turns": 1, "left": 0}
