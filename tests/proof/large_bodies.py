"""Every list and map of every route's body, filled to 32 MB, costs at most a second and 200 MB when refused.

The places are those of the OpenAPI document and, for imports, of the shapes of their lines. Where a schema
stops at "an object", the lists that the server looks for inside are named here.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.unit.server.processes import ServerProcess, started
from turnledger.engine.limits import MOST_VALUES
from turnledger.model.transfer import ChatLine, TurnLine
from turnledger.server.requests.body import SMALL_BODY_BYTES

SECONDS = 2400
SIZE = 32 * 1024 * 1024 - 4096
MOST_CPU = 1.0
MOST_MEMORY = 200 * 1024 * 1024
HOLE = "\x00hole"
"""Marks the place of the filling."""
SPREAD = f"{json.dumps('extra')}: {json.dumps(HOLE)}"
"""Filled with members of the object that it is in, if the filling is a map."""

MESSAGE = '{"role":"user","content":""}'
ELEMENTS = ("0", "{}", "[" * 90 + "]" * 90, '{"a":0}', '"%d"', MESSAGE)
"""What a list is filled with; a number makes each element a different one."""
DENSE = ("0", "{}", MESSAGE)
LARGE = ("POST /v1/chat/completions", "POST /api/turns", "POST /api/import")
"""Routes that take more than a megabyte."""
LINES = 50
"""Turns of an import that are filled together, each up to less than the bound of a line."""
ITEM = {"type": "message", "role": "user", "content": HOLE}
TURN = {"schema_version": 1, "type": "turn", "chat": "c", "id": "t", "parent": None, "kind": "completed"}
TIMES = {"created_at": 1, "committed_at": 1}
IN_OBJECTS: dict[str, tuple[dict[str, Any], ...]] = {
    "messages": (
        {"role": "user", "content": HOLE},
        {"role": "assistant", "tool_calls": HOLE},
        {"role": "assistant", "content": "x", "extra": HOLE},
        {"role": "tool", "tool_call_id": "a", "content": HOLE},
    ),
    "input": (ITEM, {"role": "user", "content": HOLE}, {"type": "other", "extra": HOLE}),
    "primer": (ITEM, {"role": "assistant", "tool_calls": HOLE}),
    "instructions": (ITEM,),
    "output": (ITEM,),
    "tools": ({"type": "function", "function": {"name": "f", "parameters": HOLE}},),
    "settings": ({"tools": HOLE}, {"modalities": HOLE}, {"stop": HOLE}, {"metadata": HOLE}),
    "details": ({"extra": HOLE},),
}
"""Lists and maps inside what a schema calls an object, by the field that holds it."""


class Case(NamedTuple):
    """One body: a request with a hole, and what the hole is filled with."""

    route: str
    place: str
    template: str
    """JSON, with the hole."""
    element: str
    is_map: bool
    values: int | None = None
    """How many values it holds, if not as many as find room."""
    size: int = SIZE

    def __str__(self) -> str:
        kind = f"{'map' if self.is_map else 'list'} of {self.element[:20]}"
        return f"{self.route} {self.place} {kind} {'full' if self.values is None else self.values}"

    def body(self) -> bytes:
        unit = f'"%d":{self.element}' if self.is_map else self.element
        count = self.size // (len(unit.replace("%d", "1000000")) + 1)
        if self.values is not None:
            count = min(count, self.values // max(1, sum(map(self.element.count, ",[{:"))))
        if "%d" in unit:
            inside = ",".join([unit.replace("%d", str(number)) for number in range(count)])
        else:
            inside = ",".join([unit] * count)
        inside += " " * (self.size - len(inside))
        if self.is_map and SPREAD in self.template:
            return self.template.replace(SPREAD, inside).encode()
        filled = f"{{{inside}}}" if self.is_map else f"[{inside}]"
        return self.template.replace(json.dumps(HOLE), filled).encode()


def holes(schema: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The value of every list and map of a schema with a hole in its place, and where that is."""
    kinds = schema.get("type", [])
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if not schema or "array" in kinds or "object" in kinds:
        yield name, HOLE
    for inner in IN_OBJECTS.get(name, ()):
        yield f"{name}.inner", inner if "object" in kinds or not schema else [inner]
    if "array" in kinds and isinstance(schema.get("items"), dict):
        for place, value in holes(schema["items"], name):
            if value != HOLE:
                yield f"{place}[]", [value]
    if "properties" in schema:
        yield f"{name}.extra", {**required(schema), "extra": HOLE}
    for field, inner in schema.get("properties", {}).items():
        for place, value in holes(inner, field):
            yield f"{name}.{place}", {**required(schema), field: value}
    for inner in itertools.chain(schema.get("anyOf", ()), schema.get("oneOf", ())):
        yield from holes(inner, name)


def required(schema: Any) -> dict[str, Any]:
    known = {"model": "demo", "messages": [{"role": "user", "content": "x"}], "input": "x"}
    return {name: known.get(name, "x") for name in schema.get("required", ())}


def lines(kind: type[ChatLine] | type[TurnLine]) -> Iterator[tuple[str, list[Any]]]:
    """The lines of an import with a hole in every list and map of this one."""
    chat = {"schema_version": 1, "type": "chat", "id": "c", "created_at": 1, "touched_at": 1}
    turn = {**TURN, **TIMES, "input": [{"role": "user", "content": "x"}], "output": []}
    _, components = msgspec.json.schema_components([kind])
    for field, schema in components[kind.__name__]["properties"].items():
        schema = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for place, value in holes(schema, field):
            if kind is ChatLine:
                yield f"chat.{place}", [{**chat, field: value}, turn]
            else:
                yield f"turn.{place}", [chat, {**turn, field: value}]
                if value == HOLE:
                    many = [{**turn, field: value, "id": f"t{number}"} for number in range(LINES)]
                    yield f"turns.{place}", [chat, *many]


def cases(document: Any) -> Iterator[Case]:
    """All of them; the same place with the same filling once."""
    seen: set[tuple[str, str]] = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                route = f"{method.upper()} {path}"
                if media == "application/json":
                    found = [(place, json.dumps(value)) for place, value in holes(content["schema"])]
                else:
                    found = [
                        (place, "\n".join(map(json.dumps, value)))
                        for kind in (ChatLine, TurnLine)
                        for place, value in lines(kind)
                    ]
                for place, template in found:
                    if (route, template) not in seen:
                        seen.add((route, template))
                        yield from fillings(route, place, template)


def fillings(route: str, place: str, template: str) -> Iterator[Case]:
    """What one hole is filled with: as much as finds room, and as much as is counted to be just below the
    bound. Most routes take no more than a megabyte, which is then what they are filled with."""
    is_large, count = route in LARGE, template.count(json.dumps(HOLE))
    for is_map in (False, True):
        for element in DENSE if is_large else ELEMENTS[:1]:
            yield Case(route, place, template, element, is_map, size=SIZE // count)
        for element in ELEMENTS if count == 1 else ():
            if is_large:
                yield Case(route, place, template, element, is_map, MOST_VALUES * 49 // 50)
            else:
                yield Case(route, place, template, element, is_map, size=SMALL_BODY_BYTES - 4096)


class Server:
    """A server in a process of its own, and what it has used so far."""

    def __init__(self, server: ServerProcess) -> None:
        self.url, self.address = server.url, server.address
        self._proc = Path(f"/proc/{server.process.pid}")

    def fetch(self, route: str, body: bytes) -> tuple[int, bytes]:
        method, _, path = route.partition(" ")
        path = path.replace("{", "").replace("}", "")
        kind = "application/x-ndjson" if path == "/api/import" else "application/json"
        headers = {"content-type": kind, "x-conversation-id": "k"} if path.startswith("/v1") else {}
        connection = http.client.HTTPConnection(*self.address, timeout=600)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it is refused before all is sent
                connection.request(method, path, body, {"content-type": kind, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def cpu(self) -> float:
        stat = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def reset_peak(self) -> int:
        """Forget the highest memory so far; what is used now."""
        (self._proc / "clear_refs").write_text("5")
        return self._memory("VmRSS")

    def peak(self) -> int:
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise AssertionError(name)


@contextmanager
def served() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--port", "0", "--log-level", "error", "--store", f"sqlite:///{folder}/chats.db")
        with started("turnledger", "serve", *flags) as server:
            yield Server(server)


class Cost(NamedTuple):
    status: int
    cpu: float
    memory: int
    answer: bytes

    @property
    def is_bounded(self) -> bool:
        """A request that is accepted may cost what its work costs."""
        is_refused = self.status >= 400 or b'"did":"refused"' in self.answer
        return not is_refused or (self.cpu <= MOST_CPU and self.memory <= MOST_MEMORY)


def cost_of(server: Server, case: Case) -> Cost:
    body = case.body()
    before, cpu = server.reset_peak(), server.cpu()
    status, answer = server.fetch(case.route, body)
    return Cost(status, server.cpu() - cpu, server.peak() - before, answer[:300])


def prove() -> None:
    beyond: list[str] = []
    dearest: dict[str, tuple[Cost, Case]] = {}
    with served() as server, urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
        everything = list(cases(json.load(answer)))
    # A server for each place: what is freed may stay with the process, and would hide what is taken next.
    for _, group in itertools.groupby(everything, lambda case: case.template):
        with served() as server:
            for case in group:
                cost = cost_of(server, case)
                if case.route not in dearest or cost.cpu > dearest[case.route][0].cpu:
                    dearest[case.route] = cost, case
                if not cost.is_bounded:
                    beyond.append(f"{case}: {cost.status}, {cost.cpu:.2f} s, {cost.memory >> 20} MB")
                    print(beyond[-1], flush=True)
    for route, (cost, case) in dearest.items():
        print(f"{route}: at most {cost.cpu:.2f} s, {cost.memory >> 20} MB ({cost.status}, {case})")
    print(f"{len(everything)} bodies of up to {SIZE >> 20} MB")
    if beyond:
        raise AssertionError("beyond the bound:\n" + "\n".join(beyond))
