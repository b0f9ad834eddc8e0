"""The reference of the TypeScript client: what its entry points export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.reference.markdown import code, head, prose, sections, table
from tools.reference.typescript_source import Declaration, Member, exported

SOURCES = Path(__file__).parents[2] / "clients" / "typescript" / "src"
ENTRIES = [SOURCES / f"{name}.ts" for name in ("index", "outbox", "unkept")]
INTRODUCTION = (
    "Everything that the package in `clients/typescript` exports, `Outbox` and what belongs to it at"
    " `turnledger/outbox`, `UnkeptChat` likewise at `turnledger/unkept`. Guarantees: [its page]"
    "(../../clients/typescript/README.md). Times are milliseconds since 1970."
)
ROOT_OF_ERRORS = "TurnledgerError"
MADE_BY_USERS = ("Client", "Outbox", "UnkeptChat")
"""All other classes are returned by something else."""


def page() -> str:
    declarations = list({each.name: each for entry in ENTRIES for each in exported(entry)}.values())
    errors = [each for each in declarations if is_error(each, declarations)]
    others = [each for each in declarations if each not in errors or each.name == ROOT_OF_ERRORS]
    ordered = sorted(others, key=_rank)
    return sections(
        [head("Reference: the TypeScript client", INTRODUCTION), *map(section, ordered), _tree(errors)]
    )


def _rank(declaration: Declaration) -> int:
    """Order classes that users create first, then others to work with, then shapes of values."""
    if declaration.name in MADE_BY_USERS:
        return 0
    return 1 if declaration.kind in ("class", "function") else 2


def parent_of(declaration: Declaration) -> str:
    """Return the class that it extends, or an empty text."""
    _, _, above = declaration.declared.partition(" extends ")
    return above.partition(" ")[0]


def is_error(declaration: Declaration, declarations: Sequence[Declaration]) -> bool:
    if declaration.name == ROOT_OF_ERRORS:
        return True
    return any(each.name == parent_of(declaration) and is_error(each, declarations) for each in declarations)


def section(declaration: Declaration) -> str:
    fields = [each for each in declaration.members if not each.is_method]
    methods = [
        each
        for each in declaration.members
        if each.is_method and (each.name != "constructor" or declaration.name in MADE_BY_USERS)
    ]
    return sections(
        [
            f"## {declaration.full_name}",
            code(declaration.declared, "ts"),
            prose(declaration.description),
            table(["", "", ""], map(_row, fields)),
            *_methods(declaration, methods),
        ]
    )


def _row(member: Member) -> tuple[str, str, str]:
    _, _, kind = member.declared.partition(": ")
    is_optional = "?" in member.declared.partition(":")[0]
    return (
        f"`{member.name}{'?' if is_optional else ''}`",
        f"`{kind}`" if kind else "",
        prose(member.description),
    )


def _methods(declaration: Declaration, methods: Sequence[Member]) -> list[str]:
    """Return a part for each method, with all its overloads."""
    overloads: dict[str, list[Member]] = {}
    for method in methods:
        overloads.setdefault(method.name, []).append(method)
    return [
        sections(
            [
                f"### {declaration.name}.{name}" if name[0] != "[" else f"### {declaration.name}{name}",
                code("\n".join(each.declared for each in ways), "ts"),
                "\n\n".join(prose(each.description) for each in ways if each.description),
            ]
        )
        for name, ways in overloads.items()
    ]


def _tree(errors: Sequence[Declaration]) -> str:
    rows = [
        (f"{'· ' * depth}`{each.full_name}`", prose(each.description))
        for depth, each in _below(ROOT_OF_ERRORS, errors, 0)
    ]
    return sections(["## Errors", table(["error", ""], rows)])


def _below(name: str, errors: Sequence[Declaration], depth: int) -> list[tuple[int, Declaration]]:
    found = [(depth, each) for each in errors if each.name == name]
    for each in errors:
        if parent_of(each) == name:
            found += _below(each.name, errors, depth + 1)
    return found
