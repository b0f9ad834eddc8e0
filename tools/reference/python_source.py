"""Facts that only the source has: texts below fields, attributes set by `__init__`, type aliases."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from io import StringIO
from itertools import pairwise


@cache
def field_docs(kind: type) -> dict[str, str]:
    """Return the texts below the fields of a class, or behind them."""
    source = textwrap.dedent(inspect.getsource(kind))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
    }
    body = _class_of(kind).body
    behind = {
        name: comments[each.lineno] for each in body for name in _targets(each) if each.lineno in comments
    }
    return {**behind, **dict(_documented(body))}


def set_when_made(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield the public attributes that `__init__` sets: name, class if obvious, and the text below."""
    for statement in _class_of(kind).body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            docs = dict(_documented(statement.body))
            for each in statement.body:
                yield from _set_by(each, docs)


def aliases(package: str) -> dict[str, tuple[str, str]]:
    """Return the type aliases of a package's modules: what each stands for, and its text."""
    found: dict[str, tuple[str, str]] = {}
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        body = ast.parse(inspect.getsource(importlib.import_module(module.name))).body
        docs = dict(_documented(body))
        for each in body:
            if isinstance(each, ast.AnnAssign) and ast.unparse(each.annotation) == "TypeAlias" and each.value:
                name = ast.unparse(each.target)
                found[name] = (ast.unparse(each.value).strip("'\""), docs.get(name, ""))
    return found


def _class_of(kind: type) -> ast.ClassDef:
    [parsed] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(parsed, ast.ClassDef)  # noqa: S101 - it is the source of a class
    return parsed


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            for name in _targets(field):
                yield name, inspect.cleandoc(str(below.value.value))


def _set_by(statement: ast.stmt, docs: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for target in _targets(statement):
        name = target.removeprefix("self.")
        if name == target or name.startswith("_") or "." in name:
            continue
        kind = ""
        if isinstance(statement, ast.AnnAssign):
            kind = ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            kind = ast.unparse(statement.value.func)
        yield (
            name,
            kind if kind.isidentifier() or isinstance(statement, ast.AnnAssign) else "",
            docs.get(target, ""),
        )


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    return [ast.unparse(each) for each in statement.targets] if isinstance(statement, ast.Assign) else []
