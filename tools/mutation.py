"""Mutation testing: change one thing in the code, and see whether a fast test fails.

    python -m tools.mutation [MODULE …] [--sample N --seed S] [--killed FILE | --again FILE]
    make mutate ARGS="turn.commit sqlite.threads"

A mutant is one small change of one function: a comparison, a condition, a constant, a keyword argument or a
statement left out. A forked process becomes the mutant and runs the schedules of the simulator, the store
contract and the unit tests that execute the changed statement, the fastest first, until one fails.

Before the first mutant the unmodified code takes the same path twice: once to record which test executes
which line, once compiled and installed like a mutant, as a control. If a test fails or hangs there, the run
ends, because nothing that it would report about mutants could be trusted.

Survivors are printed. Beside this file, mutation_survivors.txt explains those that change no behavior, and
mutation_killed.json lists mutants that a test must always kill: `--again tools/mutation_killed.json`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import inspect
import json
import os
import pkgutil
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from random import Random
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
EXPLAINED = Path(__file__).with_name("mutation_survivors.txt")
PACKAGES = ("turnledger.engine", "turnledger.stores", "turnledger.server")
CORE = (
    *("turn.begin", "turn.commit", "attempt.end", "attempt.stop", "attempt.dead_process"),
    *("attempt.idempotency", "turn.queue", "sqlite.threads"),
    *("sqlite.tables.tables", "sqlite.tables.whole", "sql.owner", "sql.whole"),
)
"""The protocol, mutated by default."""

ON_SQLITE = ("sqlite.", "sql.")
"""Modules that SQLite judges; that PostgreSQL has the latter, too, makes no difference to a mutant."""

SCHEDULES = {"memory": 60, "sqlite": 15}
"""Seeds of the simulator, by store."""

CONTROL_PATIENCE = 120.0
"""Seconds that one test may take with the unmodified code."""

SLOWER = 20
"""A mutant hangs when a test takes so many times as long as in the control, and longer than --patience."""

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder with a name of its own is made in it
QUIET = (
    *("-qq", "-s", "-n0", "--no-header", "-p", "no:cacheprovider", "-p", "no:run_logs", "-o", "timeout=0"),
    # Mutated modules are imported before pytest starts, and with them a plugin of it.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)

_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

Key = tuple[str, str, str, int]


class Verdict(Enum):
    KILLED = "killed by a failing test"
    HUNG = "hung"
    SURVIVED = "survived"
    NOT_RUN = "not executed by any test"
    NOT_MADE = "not made: its code does not compile, or does not fit the function"
    BROKEN = "broken: its process ended without a verdict"

    @property
    def is_kill(self) -> bool:
        return self in (Verdict.KILLED, Verdict.HUNG)

    @property
    def is_survival(self) -> bool:
        return self in (Verdict.SURVIVED, Verdict.NOT_RUN)


class Untrusted(Exception):
    """The run cannot judge mutants; the message has the reason."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function. Its key identifies it without line numbers or the module."""

    module: str
    function: str
    source: str
    """The first line of the changed statement."""
    change: str
    nth: int
    """Its number among mutants that are otherwise alike."""
    file: str
    lines: range
    install: Callable[[], None] = field(compare=False)

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}: {self.change}" + (f" #{self.nth}" if self.nth > 1 else "")

    @property
    def key(self) -> Key:
        return self.function, self.source, self.change, self.nth


def modules() -> dict[str, str]:
    """Return every module that can be mutated: its name on the command line → the one to import."""
    found = {}
    for package in PACKAGES:
        inside = importlib.import_module(package)
        for each in pkgutil.walk_packages(inside.__path__, f"{package}."):
            if not each.ispkg:
                found[each.name.removeprefix(f"{package}.")] = each.name
    return found


def mutants(name: str, module: ModuleType) -> Iterator[Mutant]:
    file = str(module.__file__)
    text = Path(file).read_text("utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    seen: Counter[tuple[str, str]] = Counter()
    for path, function in _functions(module, tree):
        for place, (node, statement) in enumerate(_nodes(function)):
            for becomes, _ in _changes(node):
                extent = _lines(statement)
                change = f"{_short(node)} -> {becomes}"
                seen[path, change] += 1
                yield Mutant(
                    module=name,
                    function=path,
                    source=lines[extent.start - 1].strip(),
                    change=change,
                    nth=seen[path, change],
                    file=file,
                    lines=extent,
                    install=partial(_install, module, tree, path, place, becomes),
                )


def install_unchanged(modules: Iterable[ModuleType]) -> None:
    """Replace the code of all functions by the same code, compiled as for a mutant."""
    for module in modules:
        tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
        for path, _ in _functions(module, tree):
            _install(module, tree, path, None, "")


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield the possible changes of a node: what it becomes, and a function that changes a copy of it."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _SWAPPED:
            yield "swapped", lambda at: setattr(at, "ops", [_SWAPPED[type(operator)]()])
        case ast.BoolOp(op=ast.And()):
            yield "or", lambda at: setattr(at, "op", ast.Or())
        case ast.BoolOp(op=ast.Or()):
            yield "and", lambda at: setattr(at, "op", ast.And())
        case ast.If() | ast.IfExp() | ast.While():
            yield "always", lambda at: setattr(at, "test", ast.Constant(True))
            if not isinstance(node, ast.While):
                yield "never", lambda at: setattr(at, "test", ast.Constant(False))
        case ast.Constant(value=bool(value)):
            yield str(not value), lambda at: setattr(at, "value", not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1), lambda at: setattr(at, "value", value + 1)
        case ast.BinOp(op=ast.Add()):
            yield "minus", lambda at: setattr(at, "op", ast.Sub())
        case ast.Call(keywords=keywords):
            for place, keyword in enumerate(keywords):
                if keyword.arg is not None:
                    yield f"without {keyword.arg}", lambda at, place=place: at.keywords.pop(place)
        case ast.Expr(value=ast.Await() | ast.Call()):
            yield "left out", lambda at: setattr(at, "value", ast.Constant(None))
        case ast.Raise():
            yield "left out", lambda at: setattr(at, "is_left_out", True)


class _LeaveOut(ast.NodeTransformer):
    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if getattr(node, "is_left_out", False) else node


def _install(module: ModuleType, tree: ast.Module, path: str, place: int | None, becomes: str) -> None:
    """Give a function the code of a mutant; without a place, its own, compiled again."""
    changed = tree if place is None else copy.deepcopy(tree)
    if place is not None:
        node, _ = _nodes(dict(_functions(module, changed))[path])[place]
        next(change for label, change in _changes(node) if label == becomes)(node)
    fixed = ast.fix_missing_locations(_LeaveOut().visit(changed))
    code = compile(fixed, str(module.__file__), "exec", dont_inherit=True)
    if (function := _function(module, path)) is not None:
        made = next(each for each in _within(code) if _is_of(each, function))
        # types.coroutine marks the code itself.
        mark = function.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE
        function.__code__ = made.replace(co_flags=made.co_flags | mark)


def _functions(module: ModuleType, tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the functions and methods of a module; of several with one name, the last."""
    for path, node in _defined(tree):
        function = _function(module, path)
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        if function is not None and function.__code__.co_firstlineno == first:
            yield path, node


def _defined(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node, f"{within}{node.name}.")


def _function(module: ModuleType, path: str) -> FunctionType | None:
    found: Any = module
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    found = getattr(found, "__func__", found)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, cached_property):
        found = found.func
    found = inspect.unwrap(found) if callable(found) else None
    is_here = isinstance(found, FunctionType) and found.__code__.co_filename == module.__file__
    return found if is_here else None


def _within(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _within(each)


def _is_of(code: CodeType, function: FunctionType) -> bool:
    own = function.__code__
    return (code.co_qualname, code.co_firstlineno) == (own.co_qualname, own.co_firstlineno)


def _nodes(function: ast.AST) -> list[tuple[ast.AST, ast.stmt]]:
    """Return all nodes of a function's body, each with its statement."""
    found: list[tuple[ast.AST, ast.stmt]] = []

    def visit(node: ast.AST, statement: ast.stmt) -> None:
        statement = node if isinstance(node, ast.stmt) else statement
        found.append((node, statement))
        for child in ast.iter_child_nodes(node):
            visit(child, statement)

    for statement in getattr(function, "body", []):
        visit(statement, statement)
    return found


def _lines(statement: ast.stmt) -> range:
    """Return the lines of a statement, without the statements inside it."""
    inside = [
        each.lineno for each in ast.walk(statement) if isinstance(each, ast.stmt) and each is not statement
    ]
    last = statement.end_lineno or statement.lineno
    return range(statement.lineno, min([last + 1, *(at for at in inside if at > statement.lineno)]))


def _short(node: ast.AST) -> str:
    """Return the text of a node, without the statements inside it."""
    match node:
        case ast.If(test=test) | ast.While(test=test):
            text = f"{type(node).__name__.lower()} {ast.unparse(test)}"
        case _:
            text = ast.unparse(node)
    return " ".join(text.split())[:90]


@dataclass
class Check:
    name: str
    fails: Callable[[Check | None], bool]
    """Runs it, given the next one; returns whether it failed."""
    item: pytest.Item | None = None
    seconds: float = 0.0
    lines: frozenset[tuple[str, int]] = frozenset()
    """The lines of the chosen modules that it executes."""


def tests_for(name: str, module: str) -> list[str]:
    """Return the contract of the store, the engine tests, and the unit tests of the module; of a module of
    the server, all unit tests of its folder."""
    if name.startswith(ON_SQLITE):
        return ["tests/contract/test_sqlite.py", "tests/unit/stores/sqlite"]
    if module.startswith("turnledger.server."):
        folder = Path("tests/unit/server", *name.split(".")[:-1])
        return [str(folder), "tests/unit/server/test_app.py"]
    shared, folder = ["tests/contract/test_memory.py"], "tests/unit/stores/memory"
    if module.startswith("turnledger.engine."):
        shared, folder = [*shared, "tests/engine"], "tests/unit/engine"
    last = module.rpartition(".")[2]
    found = [
        str(each.relative_to(ROOT))
        for each in sorted((ROOT / folder).rglob("test_*.py"))
        if each.stem == f"test_{last}" or module in _imported(each)
    ]
    return [*shared, *found]


def _imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def _schedules_on(name: str) -> str:
    """Return the prefix of the schedules that judge a module."""
    return "sqlite seed" if name.startswith(ON_SQLITE) else "memory seed"


def _schedules(names: Iterable[str]) -> list[Check]:
    stores = {_schedules_on(name).split()[0] for name in names}
    return [
        Check(f"{store} seed {seed}", partial(_breaks, seed, store))
        for store in sorted(stores)
        for seed in range(SCHEDULES[store])
    ]


def _breaks(seed: int, store: str, _: Check | None) -> bool:
    from turnledger.testing.simulation import simulate

    try:
        simulate(seed, store)
    except Exception:
        return True
    return False


def _test_fails(item: pytest.Item, then: Check | None) -> bool:
    from _pytest.runner import runtestprotocol

    reports = runtestprotocol(item, nextitem=then.item if then else None, log=False)
    return any(report.failed for report in reports)


def _judged(
    install: Callable[[], None],
    checks: Sequence[Check],
    patience: float,
    traced: frozenset[str] = frozenset(),
) -> tuple[Verdict, str, list[dict[str, Any]]]:
    """Fork, turn the child into the mutant, and run the checks until one fails. Return the verdict, the check
    that decided it, and the records of all."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            os.setpgid(0, 0)
            with open(os.devnull, "r+") as nowhere:
                for descriptor in (0, 1, 2):
                    os.dup2(nowhere.fileno(), descriptor)
            _be_judged(install, checks, traced, writing)
        except BaseException:
            _send(writing, problem=traceback.format_exc())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _await_verdict(reading, checks, patience)
    finally:
        os.close(reading)
        for end in (partial(os.killpg, child, signal.SIGKILL), partial(os.kill, child, signal.SIGKILL)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end()
        os.waitpid(child, 0)


def _be_judged(
    install: Callable[[], None], checks: Sequence[Check], traced: frozenset[str], writing: int
) -> None:
    try:
        install()
    except (SyntaxError, ValueError) as problem:
        _send(writing, verdict=Verdict.NOT_MADE.name, problem=repr(problem))
        return
    for place, check in enumerate(checks):
        _send(writing, begins=place)
        then = next((each for each in checks[place + 1 :] if each.item), None)
        began = time.monotonic()
        with _tracing(traced) as lines:
            has_failed = check.fails(then)
        if traced:
            _send(writing, place=place, seconds=time.monotonic() - began, lines=sorted(lines))
        if has_failed:
            _send(writing, verdict=Verdict.KILLED.name)
            return
    _send(writing, verdict=Verdict.SURVIVED.name)


def _send(writing: int, **what: Any) -> None:
    line = json.dumps(what).encode() + b"\n"
    while line:
        line = line[os.write(writing, line) :]


def _await_verdict(
    reading: int, checks: Sequence[Check], patience: float
) -> tuple[Verdict, str, list[dict[str, Any]]]:
    recorded: list[dict[str, Any]] = []
    current, rest = "", b""
    limit = patience
    while True:
        if not select.select([reading], [], [], limit)[0]:
            return Verdict.HUNG, current, recorded
        more = os.read(reading, 1 << 16)
        if not more:
            return Verdict.BROKEN, current, recorded
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "begins" in message:
                check = checks[message["begins"]]
                current, limit = check.name, max(patience, SLOWER * check.seconds)
            elif "place" in message:
                recorded.append(message)
            elif "verdict" in message:
                return Verdict[message["verdict"]], message.get("problem", current), recorded
            else:
                return Verdict.BROKEN, f"{current}: {message['problem']}", recorded


@contextlib.contextmanager
def _tracing(files: frozenset[str]) -> Iterator[set[tuple[str, int]]]:
    """Record which lines of these files are executed, by any thread that starts meanwhile."""
    lines: set[tuple[str, int]] = set()

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return follow

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        return follow if frame.f_code.co_filename in files else None

    if files:
        threading.settrace(enter)
        sys.settrace(enter)
    try:
        yield lines
    finally:
        if files:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]


@dataclass
class Run:
    mutants: Sequence[Mutant]
    checks: list[Check]
    modules: Sequence[ModuleType]
    ends_at: float
    patience: float
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The tests that judge a module; without an entry, all do."""
    verdicts: list[tuple[Mutant, Verdict]] = field(default_factory=list)
    _kills: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def control(self) -> None:
        """Record which lines each check executes, then check that the unmodified code passes as a mutant
        would."""
        began = time.monotonic()
        files = frozenset(str(module.__file__) for module in self.modules)
        verdict, where, recorded = _judged(lambda: None, self.checks, CONTROL_PATIENCE, files)
        self._demand_survival(verdict, where)
        for record in recorded:
            check = self.checks[record["place"]]
            check.seconds = record["seconds"]
            check.lines = frozenset((file, line) for file, line in record["lines"])
        self.checks = sorted((each for each in self.checks if each.lines), key=lambda each: each.seconds)
        if not self.checks:
            raise Untrusted("no test executes any of these modules")
        verdict, where, _ = _judged(partial(install_unchanged, self.modules), self.checks, self.patience)
        self._demand_survival(verdict, where)
        print(
            f"control: the unmodified code passes {len(self.checks)} tests and schedules "
            f"({time.monotonic() - began:.0f} s)",
            flush=True,
        )

    def _demand_survival(self, verdict: Verdict, where: str) -> None:
        if verdict is not Verdict.SURVIVED:
            raise Untrusted(f"the unmodified code must pass its tests, but {verdict.value} ({where})")

    def judge(self, mutant: Mutant) -> Verdict:
        touched = {(mutant.file, line) for line in mutant.lines}
        own_tests = tuple(self.tests.get(mutant.module, ()))
        chosen = [
            check
            for check in self.checks
            if not touched.isdisjoint(check.lines) and (not own_tests or check.name.startswith(own_tests))
        ]
        if not chosen:
            return Verdict.NOT_RUN
        own = (mutant.module, mutant.function)
        # Tests that killed other mutants of this function probably kill this one, too.
        chosen.sort(key=lambda check: (-self._kills[*own, check.name], check.seconds))
        verdict, where, _ = _judged(mutant.install, chosen, self.patience)
        if verdict is Verdict.BROKEN:
            print(f"broken: {mutant.name}: {where}", flush=True)
        if verdict.is_kill:
            self._kills[*own, where] += 1
        return verdict

    def run(self) -> None:
        for mutant in self.mutants:
            if time.monotonic() > self.ends_at:
                break
            verdict = self.judge(mutant)
            self.verdicts.append((mutant, verdict))
            if verdict is not Verdict.KILLED:
                print(f"{verdict.name.lower()}: {mutant.name}", flush=True)


class _Plugin:
    """Lets pytest collect the tests once, and runs the mutants instead of them."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.problem: Untrusted | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be imported")
        if not session.items:
            return None
        self.run.checks += [Check(item.nodeid, partial(_test_fails, item), item) for item in session.items]
        try:
            self.run.control()
            self.run.run()
        except Untrusted as problem:
            self.problem = problem
        return True


def _execute(run: Run, tests: Sequence[str]) -> None:
    """Run the mutants. Raises Untrusted if there is nothing to judge by."""
    plugin = _Plugin(run)
    folder = tempfile.mkdtemp(prefix="mutants-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    try:
        with contextlib.chdir(ROOT):
            code = pytest.main([*QUIET, f"--basetemp={folder}/tests", *tests], plugins=[plugin])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if plugin.problem is not None:
        raise plugin.problem
    if code != pytest.ExitCode.OK:
        reasons = {
            pytest.ExitCode.INTERRUPTED: "the tests cannot be imported, or the run was interrupted",
            pytest.ExitCode.USAGE_ERROR: "pytest refused its arguments",
            pytest.ExitCode.NO_TESTS_COLLECTED: "no tests were collected",
        }
        raise Untrusted(f"{reasons.get(code, 'pytest failed')} (exit code {int(code)})")


def explained() -> dict[str, str]:
    """Return the known survivors, and why each is harmless: blocks of a line with the name, and the
    reason."""
    blocks = EXPLAINED.read_text("utf-8").split("\n\n") if EXPLAINED.exists() else []
    lines = [block.strip().split("\n") for block in blocks if block.strip() and not block.startswith("#")]
    return {name: " ".join(reason) for name, *reason in lines}


def found_again(killed: Sequence[dict[str, Any]], there: Sequence[Mutant]) -> tuple[list[Mutant], list[str]]:
    """Return the mutants that a list of earlier ones names, and the names without one. They are found by
    function and text; after a rename, by a text that only one function has."""
    by_key: dict[Key, list[Mutant]] = {}
    by_text: dict[tuple[str, str, int], list[Mutant]] = {}
    for mutant in there:
        by_key.setdefault(mutant.key, []).append(mutant)
        by_text.setdefault(mutant.key[1:], []).append(mutant)
    found: dict[Mutant, None] = {}
    gone: list[str] = []
    for each in killed:
        function, *text = (each[part] for part in ("function", "source", "change", "nth"))
        alike = by_key.get((function, *text), [])
        named = [mutant for mutant in alike if mutant.module == each["module"]] or alike
        renamed = by_text.get(tuple(text), [])
        if not named and len(renamed) == 1:
            named = renamed
        if named:
            found[named[0]] = None
        else:
            gone.append(f"{each['module']}.{function}: {each['change']}")
    return list(found), gone


def _as_data(mutant: Mutant) -> dict[str, Any]:
    return {name: getattr(mutant, name) for name in ("module", "function", "source", "change", "nth")}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.split("\n")[0])
    parser.add_argument(
        "modules",
        nargs="*",
        metavar="MODULE",
        help="under engine/ (turn.commit), stores/ (sqlite.threads) or server/ (turns.run); "
        f"by default {', '.join(CORE)}",
    )
    parser.add_argument("--sample", type=int, help="so many mutants of each module, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this text in their name")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no mutant after this time")
    parser.add_argument("--patience", type=float, default=15.0, help="seconds after which a test hangs")
    parser.add_argument("--tests", action="append", metavar="PATH", help="judge by these tests only")
    parser.add_argument("--killed", type=Path, metavar="FILE", help="add the killed mutants to this list")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try the mutants of such a list again")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    options = parser.parse_args()
    if unknown := set(options.modules) - set(modules()):
        parser.error(f"unknown module: {', '.join(sorted(unknown))}. Known: {', '.join(modules())}.")
    return options


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    known = modules()
    names = known if options.again else options.modules or CORE
    every = [each for name in names for each in mutants(name, importlib.import_module(known[name]))]
    if options.again is not None:
        every, gone = found_again(json.loads(options.again.read_text("utf-8")), every)
        print("".join(f"no longer there: {each}\n" for each in gone), end="")
        print(f"{len(every)} mutants of the list are there, {len(gone)} are not")
    chosen: list[Mutant] = []
    for name in options.modules or names:
        some = [each for each in every if each.module == name and options.only in each.name]
        if options.sample is not None and options.sample < len(some):
            print(f"{name}: {options.sample} of {len(some)} mutants, seed {options.seed}", flush=True)
            some = Random(options.seed).sample(some, options.sample)  # noqa: S311 - a choice of tests
        chosen += some
    return chosen


def main() -> int:
    options = _arguments()
    known, explanations = modules(), explained()
    chosen = [mutant for mutant in _chosen(options) if mutant.name not in explanations]
    if options.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    names = list(dict.fromkeys(mutant.module for mutant in chosen))
    own_tests = {name: tests_for(name, known[name]) for name in names} if not options.tests else {}
    tests = options.tests or sorted({each for some in own_tests.values() for each in some})
    run = Run(
        mutants=chosen,
        checks=[] if options.tests else _schedules(names),
        modules=[importlib.import_module(known[name]) for name in names],
        ends_at=time.monotonic() + options.seconds,
        patience=options.patience,
        tests={name: [_schedules_on(name), *some] for name, some in own_tests.items()},
    )
    try:
        if not chosen:
            raise Untrusted("there is no such mutant")
        _execute(run, tests)
    except Untrusted as problem:
        print(f"Mutation testing is not possible: {problem}.", file=sys.stderr)
        return 2
    _report(run)
    if options.killed is not None:
        before = json.loads(options.killed.read_text("utf-8")) if options.killed.exists() else []
        more = [_as_data(mutant) for mutant, verdict in run.verdicts if verdict is Verdict.KILLED]
        listed = [*before, *(each for each in more if each not in before)]
        options.killed.write_text("[\n" + ",\n".join(map(json.dumps, listed)) + "\n]\n", "utf-8")
    return 1 if any(not verdict.is_kill for _, verdict in run.verdicts) else 0


def _report(run: Run) -> None:
    for name in dict.fromkeys(mutant.module for mutant in run.mutants):
        counts = Counter(verdict for mutant, verdict in run.verdicts if mutant.module == name)
        waiting = sum(mutant.module == name for mutant in run.mutants) - counts.total()
        totals = [f"{counts[each]} {each.value}" for each in Verdict if counts[each]]
        print(f"{name}: {', '.join(totals + ([f'{waiting} not tried'] if waiting else []))}")
    counts = Counter(verdict for _, verdict in run.verdicts)
    print(
        f"{counts.total()} mutants: "
        f"{counts[Verdict.KILLED]} killed by a failing test, {counts[Verdict.HUNG]} hung, "
        f"{sum(counts[each] for each in Verdict if each.is_survival)} survive without an explanation, "
        f"{counts[Verdict.NOT_MADE]} not made, {counts[Verdict.BROKEN]} broken"
    )


if __name__ == "__main__":
    sys.exit(main())
