"""A reader of TypeScript sources: exports with the comments above them. It relies on the formatted layout,
two spaces a level, and does not parse the language."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

_KEYWORDS = r"(?:declare |default |abstract |async )*(class|interface|type|function\*?|const|enum)"
_EXPORTED = re.compile(rf"^export {_KEYWORDS} (\w+)")
_FORWARDED = re.compile(
    r"^export (?:type )?(\{.*?\}|\*(?: as \w+)?) from \"\./(.+?)\.js\";", re.MULTILINE | re.DOTALL
)
_HIDDEN = re.compile(r"(private |protected )|(static |readonly |async |get |set |\*)*[#_]")
_NAME = re.compile(
    r"^(?:public |static |abstract |override |readonly |async |\*\s*|get |set )*(\[[^\]]+\]|\w+|\(|<)"
)


@dataclass
class Member:
    name: str
    declared: str
    description: str
    has_body: bool = False

    @property
    def is_method(self) -> bool:
        return re.match(r"(async |static |\*\s*)*(\[[^\]]+\]|\w+)\??[<(]", self.declared) is not None


@dataclass
class Declaration:
    kind: str
    name: str
    declared: str
    description: str
    members: list[Member] = field(default_factory=list)
    namespace: str = ""
    """The namespace of its name, if it is not exported by itself."""

    @property
    def full_name(self) -> str:
        """As written by users of the package."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


def exported(index: Path) -> Iterator[Declaration]:
    """Yield what a module exports, first its re-exports, in source order."""
    source = index.read_text("utf-8")
    for named, module in _FORWARDED.findall(source):
        path = index.parent / f"{module}.ts"
        if named.startswith("*"):
            namespace = named.removeprefix("*").removeprefix(" as ")
            yield from (replace(each, namespace=namespace or each.namespace) for each in exported(path))
            continue
        found = {each.name: each for each in declarations(path.read_text("utf-8"))}
        for name in re.findall(r"(?:type )?(\w+)(?: as \w+)?", named.strip("{} \n")):
            if name in found:
                yield found[name]
    yield from declarations(source)


def declarations(source: str) -> Iterator[Declaration]:
    lines = source.split("\n")
    for number, line in enumerate(lines):
        found = _EXPORTED.match(line)
        if found is None:
            continue
        block = _block(lines[number:])
        description, _ = _comment_before(lines[:number])
        declaration = Declaration(found[1].rstrip("*"), found[2], _head(block, found[1]), description)
        if found[1] in ("class", "interface", "enum"):
            declaration.members = list(_members(block[1:-1]))
        yield declaration


def _block(lines: Sequence[str]) -> list[str]:
    """Return the lines of one declaration: up to the next line at the margin that does not close it."""
    block = [lines[0]]
    for line in lines[1:]:
        if line and not line.startswith((" ", "}", ")", "]", "|")):
            break
        if not line and (len(block) == 1 or not block[-1].startswith(" ")):
            break
        block.append(line)
    while not block[-1]:
        block.pop()
    return block


def _head(block: Sequence[str], kind: str) -> str:
    first = block[0].removeprefix("export ").removeprefix("declare ")
    if kind in ("class", "interface", "enum"):
        return re.sub(r"\s*\{\}?$", "", first)
    if kind == "type":
        return "\n".join([first, *block[1:]]).rstrip(";")
    if kind == "const":
        return re.split(r" = |;$", first)[0]
    return _signature([first, *block[1:]])[0]


def _signature(lines: Sequence[str]) -> tuple[str, bool]:
    """Return a declaration up to its body or its end, and whether it has a body."""
    taken: list[str] = []
    for line in lines:
        taken.append(line)
        text = line.strip()
        is_closing = len(taken) == 1 or text.startswith((")", "}", "]")) or line == taken[0]
        if is_closing and text.endswith((" {", ";", "{}", "}")) and _is_balanced("\n".join(taken)):
            break
    declared = "\n".join(taken)
    has_body = not declared.endswith(";")
    return re.sub(r"\s*(\{\}|\{|;)$", "", declared), has_body


def _is_balanced(text: str) -> bool:
    return text.count("(") == text.count(")")


def _members(lines: Sequence[str]) -> Iterator[Member]:
    members: list[Member] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        if not re.match(r"^  [^\s}/*)\]]", line):
            number += 1
            continue
        description, is_internal = _comment_before(lines[:number])
        declared, has_body = _signature([each.removeprefix("  ") for each in lines[number:]])
        number += len(declared.split("\n"))
        declared = re.sub(r"^(declare |override |public )+", "", declared)
        name = _NAME.match(declared)
        if name is None or _HIDDEN.match(declared) or is_internal:
            continue
        if "=" in declared and not re.match(r".*[(<]", declared.partition("=")[0]):
            declared = declared.partition(" =")[0]
        members.append(Member(name[1], declared, description, has_body))
    yield from _without_implementations(members)


def _without_implementations(members: Sequence[Member]) -> Iterator[Member]:
    """Yield the overloads of a method, not its implementation."""
    for place, member in enumerate(members):
        before = members[place - 1] if place else None
        if (
            before
            and before.is_method
            and before.name == member.name
            and member.has_body
            and not before.has_body
        ):
            continue
        yield member


def _comment_before(lines: Sequence[str]) -> tuple[str, bool]:
    """Return the text of the comment directly above, and whether it is marked internal."""
    if not lines or not lines[-1].rstrip().endswith("*/"):
        return "", False
    start = len(lines) - 1
    while start > 0 and "/**" not in lines[start]:
        start -= 1
    text = "\n".join(re.sub(r"^\s*(/\*\*|\*(?!/))? ?", "", each) for each in lines[start:])
    text = text.replace("*/", "").strip()
    return text, "@internal" in text
