"""Mutation testing: change one thing in the code, and see whether the fast tests notice.

    python -m tools.mutation [MODULE …] [--sample N] [--seconds S]     or: make mutate ARGS="commit stops"

Each mutant is one small change of one function: a comparison, a condition, a constant, a keyword argument or
a statement left out. A forked process becomes the mutant and runs a few schedules of the simulator, then the
store contract in memory or, for SQLite, the tests of the writer, until one of them fails. Survivors are
printed; those that change nothing anyone relies on are explained in mutation_survivors.txt, beside this file.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import importlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import CodeType, FunctionType, ModuleType

ENGINE = ("commit", "begin", "ending", "stops", "recovery")
MODULES = {
    **{name: f"turnledger.engine.{name}" for name in ENGINE},
    "writer": "turnledger.stores.sqlite.writer",
}
CONTRACT = "tests/contract/test_memory.py"
WRITER = tuple(
    f"tests/unit/stores/sqlite/test_{name}.py" for name in ("writer", "moved", "worker", "power_loss")
)
SEEDS, MORE_SEEDS = range(25), range(25, 60)
LIMIT = 150
"""Seconds after which a mutant counts as noticed: something hangs."""
EXPLAINED = Path(__file__).with_name("mutation_survivors.txt")
SURVIVED, NOTICED = 0, 7

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


@dataclass(frozen=True)
class Mutant:
    """One change of one function. `name` says which, whatever the number of the line is."""

    name: str
    function: str
    make: Callable[[], CodeType]


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """What can be changed about a node: what it becomes, and a function that does it to a copy of it."""
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
                    yield f"without {keyword.arg}", lambda at, place=place: at.keywords.pop(place)  # type: ignore[attr-defined]
        case ast.Expr(value=ast.Await() | ast.Call()):
            yield "left out", lambda at: setattr(at, "value", ast.Constant(None))
        case ast.Raise():
            yield "left out", lambda at: (setattr(at, "exc", None), setattr(at, "left_out", True))


class _LeaveOut(ast.NodeTransformer):
    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if getattr(node, "left_out", False) else node


def mutants(module: ModuleType) -> Iterator[Mutant]:
    """All mutants of the functions of a module."""
    file = str(module.__file__)
    tree = ast.parse(Path(file).read_text())
    seen: Counter[str] = Counter()
    for function, path in _functions(tree):
        for place, node in enumerate(_nodes(function)):
            for becomes, _ in _changes(node):
                name = f"{module.__name__.rpartition('.')[2]}.{path}: {_short(node)} -> {becomes}"
                seen[name] += 1
                unique = name if seen[name] == 1 else f"{name} #{seen[name]}"
                yield Mutant(unique, path, partial(_mutated, tree, file, path, place, becomes))


def _mutated(tree: ast.Module, file: str, path: str, place: int, becomes: str) -> CodeType:
    changed = copy.deepcopy(tree)
    node = _nodes(next(function for function, at in _functions(changed) if at == path))[place]
    next(change for label, change in _changes(node) if label == becomes)(node)
    fixed = ast.fix_missing_locations(_LeaveOut().visit(changed))
    return _code_of(compile(fixed, file, "exec", dont_inherit=True), path)


def _functions(tree: ast.AST, within: str = "") -> Iterator[tuple[ast.AST, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, within + node.name
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{within}{node.name}.")


def _nodes(function: ast.AST) -> list[ast.AST]:
    body: list[ast.stmt] = getattr(function, "body", [])
    return [node for statement in body for node in ast.walk(statement)]


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:90]


def _code_of(code: CodeType, path: str) -> CodeType:
    for part in path.split("."):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == part)
    return code


def _function(module: ModuleType, path: str) -> FunctionType:
    found: object = module
    for part in path.split("."):
        found = vars(found)[part]
    found = getattr(found, "__func__", found)
    found = found.fget if isinstance(found, property) else found
    if not isinstance(found, FunctionType):
        raise TypeError(f"{path} is not a function")
    return found


def _notices(name: str, module: ModuleType, mutant: Mutant) -> bool:
    """Whether a test notices the mutant, which this process becomes."""
    _function(module, mutant.function).__code__ = mutant.make()
    if name == "writer":
        return _breaks("sqlite", SEEDS[:8]) or _fails(*WRITER)
    return _breaks("memory", SEEDS) or _fails(CONTRACT) or _breaks("memory", MORE_SEEDS)


def _breaks(store: str, seeds: range) -> bool:
    from turnledger.testing.simulation import simulate

    try:
        for seed in seeds:
            simulate(seed, store)
    except Exception:
        return True
    return False


def _fails(*tests: str) -> bool:
    import pytest

    quiet = ("-q", "-x", "-n0", "-p", "no:cacheprovider", "--no-header", "--tb=no")
    return pytest.main([*quiet, *tests]) != pytest.ExitCode.OK


def is_noticed(name: str, module: ModuleType, mutant: Mutant) -> bool:
    """Fork, and let the child be the mutant. A child that dies or hangs is noticed, too."""
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        os.setpgid(0, 0)
        try:
            os._exit(NOTICED if _notices(name, module, mutant) else SURVIVED)
        except BaseException:
            os._exit(NOTICED)
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) != SURVIVED
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def explained() -> dict[str, str]:
    """Survivors that are known, and why each is harmless: blocks of a line with the name, and the reason."""
    blocks = EXPLAINED.read_text().split("\n\n") if EXPLAINED.exists() else []
    lines = [block.strip().split("\n") for block in blocks if block.strip() and not block.startswith("#")]
    return {name: " ".join(reason) for name, *reason in lines}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.split("\n")[0])
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)}; all by default"
    )
    parser.add_argument("--sample", type=int, help="so many mutants of each module, drawn by --seed")
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this text in their name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no mutant after this time")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    asked = parser.parse_args()
    if unknown := set(asked.modules) - set(MODULES):
        parser.error(f"unknown module: {', '.join(sorted(unknown))}. Known: {', '.join(MODULES)}.")
    known, ends_at = explained(), time.monotonic() + asked.seconds
    survivors: list[str] = []
    tried = 0
    for name in asked.modules or MODULES:
        module = importlib.import_module(MODULES[name])
        all_mutants = [mutant for mutant in mutants(module) if asked.only in mutant.name]
        chosen = Random(asked.seed).sample(  # noqa: S311 - a choice of tests
            all_mutants, min(asked.sample or len(all_mutants), len(all_mutants))
        )
        if asked.list:
            print("\n".join(mutant.name for mutant in chosen))
            continue
        importlib.import_module("pytest")  # once, and not in each child
        importlib.import_module("turnledger.testing.store_contract")
        importlib.import_module("turnledger.testing.simulation")
        gc.freeze()
        before, tried_before = len(survivors), tried
        for mutant in chosen:
            if time.monotonic() > ends_at:
                break
            tried += 1
            if mutant.name not in known and not is_noticed(name, module, mutant):
                survivors.append(mutant.name)
                print(mutant.name, flush=True)
        print(
            f"{name}: {tried - tried_before} of {len(all_mutants)} mutants tried, "
            f"{len(survivors) - before} survive",
            flush=True,
        )
    if not asked.list:
        print(f"{tried} mutants, {len(survivors)} survivors without an explanation")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
