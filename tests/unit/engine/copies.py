"""Generated histories and client copies of them; each message refers to its stored original."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.unit.model import shapes
from tests.unit.model.shapes import call, reasoning, result, some_id
from turnledger.engine.resend import match
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, message
from turnledger.model.turn import Turn, TurnKind

Tag = tuple[int, str]
"""Turn and text of a stored message; turn -1 for a new one."""
NEW = -1
COMPLETED, INTERRUPTED, SETTLED = TurnKind.COMPLETED, TurnKind.INTERRUPTED, TurnKind.SETTLED


@dataclass(frozen=True)
class Sent:
    """A message of a client, and the stored messages it was made from."""

    message: dict[str, Any]
    tags: tuple[Tag, ...]

    @property
    def role(self) -> str:
        return str(self.message["role"])


@dataclass(frozen=True)
class SentLog:
    """A turn, and its messages in this API."""

    turn: Turn
    input: list[Sent]
    output: list[Sent]
    with_server_items: list[Sent] = field(default_factory=list)
    hidden: frozenset[Tag] = frozenset()
    """Hidden messages, which the client may still hold."""

    def __repr__(self) -> str:
        return f"Told({self.turn.kind}, {[sent.message for sent in self.copy]})"

    @property
    def copy(self) -> list[Sent]:
        return self.input + self.output

    @property
    def tags(self) -> list[Tag]:
        return [tag for sent in self.copy for tag in sent.tags]

    @property
    def may_be_absent(self) -> bool:
        return self.turn.kind is not TurnKind.COMPLETED


def turn(
    number: int, input: Sequence[Item], output: Sequence[Item], kind: TurnKind = TurnKind.COMPLETED
) -> Turn:
    parent = some_id(TurnId, number - 1) if number > 1 else None
    return shapes.turn(number, input=input, output=output, kind=kind, parent=parent)


def chat(*texts: str) -> list[dict[str, Any]]:
    """Messages of user and assistant in turns."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def plain(*texts: str) -> list[Turn]:
    """Turns of one question and one answer each."""
    return [
        turn(at // 2 + 1, [message("user", texts[at])], [message("assistant", texts[at + 1])])
        for at in range(0, len(texts), 2)
    ]


def user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def tool_call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def id(number: int) -> TurnId:
    return some_id(TurnId, number)


LINE = plain("q1", "a1", "q2", "a2", "q3", "a3")
ALL = chat("q1", "a1", "q2", "a2", "q3", "a3")
SYSTEM = {"role": "system", "content": "Today is Monday."}
PENDING = [
    turn(1, [message("user", "q1")], [reasoning(), call("a"), call("b", arguments='{"x": 1, "y": 2.0}')])
]
ANSWERED = [
    *PENDING,
    turn(2, [result("a", output="1"), result("b", output="2")], [message("assistant", "3")]),
]


class _Writer:
    """Makes turns with unique texts."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._numbers = count()
        self.logs: list[SentLog] = []

    def text(self) -> str:
        words = self._draw(
            st.sampled_from(["hello there", "Größe über", "été", "{} [x]", "두 번", "a\n\n b"])
        )
        return f"{words}, which is number {next(self._numbers)}"

    def sent_message(self, role: str, text: str, **more: Any) -> Sent:
        return Sent({"role": role, "content": text, **more}, ((len(self.logs), text),))

    def add(
        self,
        input: list[Item],
        output: list[Item],
        copy: tuple[list[Sent], list[Sent]],
        kind: TurnKind = TurnKind.COMPLETED,
        with_server_items: list[Sent] | None = None,
        hidden: Collection[int] = (),
    ) -> None:
        made = turn(len(self.logs) + 1, input, output, kind)
        tags = frozenset((len(self.logs), made.items[place].text) for place in hidden)
        shown = made.with_hidden(frozenset(hidden)) if hidden else made
        self.logs.append(SentLog(shown, *copy, with_server_items or [], tags))

    def question(self) -> tuple[list[Item], list[Sent]]:
        texts = [self.text() for _ in range(self._draw(st.sampled_from([1, 1, 1, 2])))]
        return [message("user", text) for text in texts], [self.sent_message("user", text) for text in texts]

    def answer(self) -> tuple[list[Item], list[Sent]]:
        """Draw one or two messages, which this API shows as one."""
        texts = [self.text() for _ in range(self._draw(st.sampled_from([1, 1, 2])))]
        thoughts = [reasoning()] if self._draw(st.booleans()) else []
        joined = Sent(
            {"role": "assistant", "content": "".join(texts)}, tuple((len(self.logs), text) for text in texts)
        )
        return [*thoughts, *(message("assistant", text) for text in texts)], [joined]

    def plain(self) -> None:
        (question, user_message), (answer, answered) = self.question(), self.answer()
        self.add(question, answer, (user_message, answered))

    def several(self) -> None:
        """Add a turn whose client sent several exchanges, some of them hidden since."""
        texts = [self.text() for _ in range(2 * self._draw(st.integers(1, 2)) + 1)]
        roles = [("user", "assistant")[at % 2] for at in range(len(texts))]
        input = [message(role, text) for role, text in zip(roles, texts, strict=True)]
        answer = self.text()
        hidden = self._draw(st.sets(st.integers(0, len(texts)), max_size=2))
        self.add(
            input,
            [message("assistant", answer)],
            (list(map(self.sent_message, roles, texts)), [self.sent_message("assistant", answer)]),
            hidden=hidden,
        )

    def hidden(self) -> None:
        question, answer = self.text(), self.text()
        self.add(
            [message("user", question)],
            [message("assistant", answer)],
            ([self.sent_message("user", question)], [self.sent_message("assistant", answer)]),
            hidden=self._draw(st.sets(st.integers(0, 1), min_size=1)),
        )

    def server_tools(self) -> None:
        """Add a server-side call: the client sees the texts around it as one."""
        question, user_message = self.question()
        before, found, after = self.text(), self.text(), self.text()
        here = len(self.logs)
        items = [
            message("assistant", before),
            call("s"),
            result("s", output=found),
            message("assistant", after),
        ]
        shown = Sent({"role": "assistant", "content": before + after}, ((here, before), (here, after)))
        whole = [
            self.sent_message("assistant", before, tool_calls=[tool_call("s")]),
            Sent({"role": "tool", "tool_call_id": "s", "content": found}, ()),
            self.sent_message("assistant", after),
        ]
        self.add(question, items, (user_message, [shown]), with_server_items=whole)

    def client_tools(self) -> None:
        """Add two turns: one with calls, one that begins with the results."""
        question, user_message = self.question()
        ids = ["a", "b"][: self._draw(st.integers(1, 2))]
        deep = {"x": [1.0, None], "ü": "ß"}
        written = {id: json.dumps({"deep": deep, "first": self.text()}) for id in ids}
        here = len(self.logs)
        calls = Sent(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [tool_call(id, text) for id, text in written.items()],
            },
            ((here, f"calls {ids}"),),
        )
        made = [call(id, arguments=text) for id, text in written.items()]
        self.add(question, [reasoning(), *made], (user_message, [calls]))
        found = {id: self.text() for id in ids}
        answer, answered = self.answer()
        results = [self.sent_message("tool", text, tool_call_id=id) for id, text in found.items()]
        self.add([result(id, output=text) for id, text in found.items()], answer, (results, answered))

    def interrupted(self) -> None:
        question, user_message = self.question()
        partial = self.text()
        if self._draw(st.booleans()):
            output = [message("assistant", partial, status="incomplete")]
            self.add(question, output, (user_message, [self.sent_message("assistant", partial)]), INTERRUPTED)
        else:
            self.add(question, [], (user_message, []), INTERRUPTED)

    def settled(self) -> None:
        question, user_message = self.question()
        output = [call("s"), result("s", output=self.text()), message("developer", "It did not finish.")]
        self.add(question, output, (user_message, []), SETTLED)


KINDS = [
    *("plain", "plain", "plain", "several", "hidden"),
    *("server_tools", "client_tools", "interrupted", "settled"),
]


@st.composite
def lines(draw: st.DrawFn, *, at_least: int = 1, kinds: Sequence[str] = KINDS) -> list[SentLog]:
    """Draw a branch, with the messages its client saw."""
    writer = _Writer(draw)
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=at_least, max_size=7)):
        getattr(writer, kind)()
    return writer.logs


def _apart(sent: Sent) -> list[Sent]:
    """Split an answer into its messages, as other APIs show it."""
    if len(sent.tags) < 2:
        return [sent]
    return [Sent({"role": "assistant", "content": tag[1]}, (tag,)) for tag in sent.tags]


def _rewritten_arguments(sent: Sent) -> Sent:
    calls = [
        tool_call(f"other_{at}", json.dumps(_reversed(json.loads(each["function"]["arguments"])), indent=2))
        for at, each in enumerate(sent.message["tool_calls"])
    ]
    return replace(sent, message={**sent.message, "tool_calls": calls})


def _reversed(value: Any) -> Any:
    """Reorder the names of JSON, and write whole numbers as JavaScript does."""
    if isinstance(value, dict):
        return {name: _reversed(each) for name, each in reversed(value.items())}
    if isinstance(value, list):
        return [_reversed(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _respelled(draw: st.DrawFn, sent: Sent) -> Iterator[Sent]:
    """Rewrite a message as another client would, sometimes as two."""
    text = sent.message["content"]
    how = draw(st.sampled_from(["as is", "as is", "spaces", "decomposed", "parts", "nulls", "split"]))
    if "tool_calls" in sent.message and draw(st.booleans()):
        sent = _rewritten_arguments(sent)
    if text is None or how == "as is":
        yield sent
    elif how == "split" and sent.role == "assistant" and "tool_calls" not in sent.message:
        cut = draw(st.integers(1, len(text) - 1))
        whole = replace(sent, message={**sent.message, "content": text[:cut]})
        yield whole
        yield Sent({"role": "assistant", "content": text[cut:]}, ())
    else:
        parts = [{"type": "text", "text": text[:3]}, {"type": "text", "text": text[3:]}]
        content = {
            "spaces": f" \n{text}\t ",
            "decomposed": unicodedata.normalize("NFD", text),
            "parts": parts,
        }.get(how, text)
        nulls = {"name": "ann", "refusal": None, "audio": None} if how == "nulls" else {}
        yield replace(sent, message={**sent.message, "content": content, **nulls})


@st.composite
def copies(draw: st.DrawFn, logs: Sequence[SentLog]) -> list[Sent]:
    """Draw a client's copy of these turns: rewritten, and without some optional messages."""
    copy: list[Sent] = []
    for each in logs:
        held = each.copy
        if each.hidden and draw(st.booleans()):
            held = [sent for sent in held if not each.hidden & {*sent.tags}]
        if each.may_be_absent:
            held = held[: draw(st.integers(0, len(held)))]
        elif each.with_server_items and draw(st.booleans()):
            held = each.input + each.with_server_items
        elif not each.hidden and draw(st.booleans()):
            held = each.input + [apart for sent in each.output for apart in _apart(sent)]
        if held and draw(st.integers(0, 9)) == 0:
            copy.append(Sent({"role": "system", "content": "It is late."}, ()))
        for sent in held:
            copy.extend(_respelled(draw, sent))
    return copy


@st.composite
def trimmed(draw: st.DrawFn, copy: Sequence[Sent]) -> list[Sent]:
    """Draw the end of a copy, as clients send it when the whole is too long."""
    begins = [at for at, sent in enumerate(copy) if sent.tags]
    return list(copy[draw(st.sampled_from(begins)) :]) if begins else []


def decide(
    turns: Sequence[Turn], messages: Sequence[dict[str, Any]], sent: match.SentMessages | None = None
) -> match.Meaning:
    """What these messages mean, apart from what their client has trimmed."""
    return msgspec.structs.replace(match.decide(turns, messages, sent), trimmed=None)
