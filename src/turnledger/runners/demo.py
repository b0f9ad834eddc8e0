"""The demo model: a deterministic chat model without a network, to try everything with.

It repeats what it was asked and what it remembers, which shows what became of a turn. Words at the beginning
of a message make it think, call tools, fail, stall or slow down; `/help` lists them. Its answer depends on
the messages alone.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast

import msgspec

from turnledger.errors import MalformedAnswer, MalformedItems, ModelRefused, ModelTimeout, ModelUnavailable
from turnledger.model.messages.messages import CALL_BODIES, Message, validate_messages
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.chat_runner import CallDeltas

HELP = """\
Send any message, and I reply with what I remember. Or start with a command:
/call NAME {"some": "JSON"}  call a tool of the request; several lines make several calls
/count N  count to N
/think TEXT  reason first, then answer
/markdown  show a sample of Markdown
/slow TEXT  answer slowly, also to another command
/length  stop in the middle, as if the length limit was reached
/refuse  refuse to answer
/fail [after N]  fail, at once or after N words
/cut [after N]  cut off the answer without a reason
/stall [after N]  stop sending until the request times out
/help  list these commands"""

MARKDOWN = """\
# A sample of Markdown

Text can be *italic*, **bold**, ~~struck through~~ or `code`, or a [link](https://example.com/a?b=c).

## Lists

1. First step
2. Second step
   - one part
   - another part

- [x] done
- [ ] to do

## A table

| turn | outcome | tokens |
|:--|:-:|--:|
| 1 | completed | 12 |
| 2 | interrupted | 7 |

## Code

```python
async with chat.turn("Hello") as turn:
    turn.emit("Hi.")  # whole, or it never happened
```

```json
{"state": "completed", "tokens": 12, "is_kept": true}
```

> A turn is in the history whole,
> or it never happened.

---

![An external image](https://example.com/picture.png)

And right to left: مرحبا بالعالم."""

_COMMAND = re.compile(r"/(?P<name>[a-z]+)\b(?P<rest>.*)", re.DOTALL)
_AFTER = re.compile(r"\s*after\s+(?P<words>\d{1,9})")
_NUMBER = re.compile(r"\s*(?P<number>\d{1,9})")
_CALL = re.compile(r"/call\s+(?P<name>\S+)[ \t]*(?P<arguments>.*)")
_WORD = re.compile(r"\s*\S+")
_HIGHEST = 10_000
_QUOTED = 80


class Ending(Enum):
    WELL = "well"
    FAILS = "fails"
    STALLS = "stalls"
    CUT = "cut"


_ENDINGS = {"fail": Ending.FAILS, "stall": Ending.STALLS, "cut": Ending.CUT}


@dataclass(frozen=True)
class DemoAnswer:
    """An answer: the deltas of its message, and how it ends."""

    deltas: Sequence[dict[str, Any]]
    finish_reason: str = "stop"
    ending: Ending = Ending.WELL
    is_slow: bool = False
    prompt_words: int = 0

    @property
    def usage(self) -> dict[str, int]:
        """The reported usage, with words in place of tokens."""
        words = len(self.deltas)
        return {
            "prompt_tokens": self.prompt_words,
            "completion_tokens": words,
            "total_tokens": self.prompt_words + words,
        }


def answer_to(request: ModelRequest) -> DemoAnswer:
    """Derive the answer from the messages. Raises ModelRefused for malformed messages, as a model does."""
    try:
        messages = validate_messages(request.messages)
    except MalformedItems as problem:
        error = {"message": str(problem), "type": "invalid_request_error", "param": "messages", "code": None}
        raise ModelRefused(400, error) from None
    words = sum(len(_text(message).split()) for message in messages)
    return replace(_answer_to(messages, _tools(request.settings.get("tools"))), prompt_words=words)


def _answer_to(messages: Sequence[Message], tools: Mapping[str, str]) -> DemoAnswer:
    if not messages or messages[-1]["role"] != "user":
        return _text_answer(_memory(messages))
    text = _text(messages[-1])
    command = _COMMAND.match(text.strip())
    if command is None:
        return _text_answer(_memory(messages))
    name, rest = command["name"], command["rest"]
    if name in _ENDINGS:
        after = _AFTER.match(rest)
        words = _words("content", _memory(messages))[: int(after["words"]) if after else 0]
        return DemoAnswer(words, ending=_ENDINGS[name])
    if name == "call":
        return _call_answer(text, messages, tools)
    if name == "length":
        words = _words("content", _memory(messages))
        return DemoAnswer(words[: len(words) // 2], finish_reason="length")
    if name == "refuse":
        return DemoAnswer(_words("refusal", "I refuse to answer, as requested."))
    if name == "think":
        return DemoAnswer(
            [*_words("reasoning_content", _thoughts(messages)), *_words("content", _memory(messages))]
        )
    if name == "slow":
        inner = _COMMAND.match(rest.strip())
        # Once only: a long chain would recurse too deeply.
        if inner is None or inner["name"] == "slow":
            return replace(_text_answer(_memory(messages)), is_slow=True)
        last = cast(Message, {**messages[-1], "content": rest})
        return replace(_answer_to([*messages[:-1], last], tools), is_slow=True)
    return _text_answer(_command_reply(name, rest))


def _command_reply(name: str, rest: str) -> str:
    number = _NUMBER.match(rest)
    if name == "count" and number is not None:
        return " ".join(str(each) for each in range(1, min(int(number["number"]), _HIGHEST) + 1)) or "0"
    if name == "markdown":
        return MARKDOWN
    return HELP if name == "help" else f"Unknown command /{name}. Send /help for a list."


def _text_answer(text: str) -> DemoAnswer:
    return DemoAnswer(_words("content", text))


def _words(field: str, text: str) -> list[dict[str, Any]]:
    return [{field: word} for word in _WORD.findall(text)]


def _memory(messages: Sequence[Message]) -> str:
    questions = [message for message in messages if message["role"] == "user"]
    results = _results(messages)
    if results:
        answers = ", ".join(_quote(_text(message)) for message in results)
        return f"The tool returned {answers}. I remember {_count_messages(len(questions))} from you."
    if not questions:
        return "There is no message from you."
    last, earlier = _quote(_text(questions[-1])), len(questions) - 1
    if not earlier:
        return f"You said {last}. I remember nothing before that."
    before = _quote(_text(questions[-2]))
    return (
        f"You said {last}. I remember {_count_messages(earlier)} from you before that, the last one {before}."
    )


def _thoughts(messages: Sequence[Message]) -> str:
    questions = [message for message in messages if message["role"] == "user"]
    return (
        f"The user said {_quote(_text(questions[-1]))}.\n\nI look at the earlier messages: there are "
        f"{len(messages) - 1}, {len(questions) - 1} of them from the user. I report that."
    )


def _count_messages(messages: int) -> str:
    return f"{messages} message{'' if messages == 1 else 's'}"


def _results(messages: Sequence[Message]) -> list[Message]:
    start = len(messages)
    while start and messages[start - 1]["role"] == "tool":
        start -= 1
    return list(messages[start:])


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line if len(line) <= _QUOTED else line[: _QUOTED - 1] + "…"}"'


def _text(message: Message) -> str:
    content = message.get("content")
    if not isinstance(content, list):
        return content or ""
    parts = [part if isinstance(part, dict) else {} for part in content]
    return " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _call_answer(text: str, messages: Sequence[Message], tools: Mapping[str, str]) -> DemoAnswer:
    earlier = sum(len(message.get("tool_calls", ())) for message in messages)
    deltas: list[dict[str, Any]] = []
    for index, match in enumerate(_CALL.finditer(text)):
        name, arguments = match["name"], match["arguments"].strip() or "{}"
        if name not in tools:
            known = ", ".join(tools) or "none"
            return _text_answer(f"Unknown tool {name}. Tools of this request: {known}.")
        kind = tools[name]
        if kind == "function" and not _is_object(arguments):
            return _text_answer('The arguments of /call must be a JSON object, as in {"city": "Rome"}.')
        grows = CALL_BODIES[kind]
        first = {"id": f"call_demo_{earlier + index}", "type": kind, kind: {"name": name, grows: ""}}
        deltas.append({"tool_calls": [{"index": index, **first}]})
        deltas.append({"tool_calls": [{"index": index, kind: {grows: arguments}}]})
    if not deltas:
        return _text_answer('Give the tool to call, as in /call weather {"city": "Rome"}.')
    return DemoAnswer(deltas, finish_reason="tool_calls")


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def decode_field(given: Any) -> Any:
    """Decode a field as the client sent it; None if it is unreadable, such as a number out of range."""
    if not isinstance(given, msgspec.Raw):
        return given
    try:
        return msgspec.json.decode(given)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _tools(given: Any) -> dict[str, str]:
    """Return the names of the tools that may be called, each with its kind."""
    given = decode_field(given)
    tools: dict[str, str] = {}
    for tool in given if isinstance(given, list) else ():
        kind = tool.get("type") if isinstance(tool, dict) else None
        body = tool.get(kind) if isinstance(kind, str) and kind in CALL_BODIES else None
        if isinstance(body, dict) and isinstance(body.get("name"), str):
            tools[body["name"]] = str(kind)
    return tools


_FAILED = "The demo model failed, as requested."
_STALLED = "The demo model stalled, as requested."
_CUT = "The demo model stopped early, as requested."


class DemoModel:
    """Answers word by word, one every `pace` seconds; with `/slow`, one every `slow_pace`. A stall ends with
    ModelTimeout after `patience` seconds. `sleep` and `now` replace the clock."""

    def __init__(
        self,
        *,
        pace: float = 0.02,
        slow_pace: float = 0.5,
        patience: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._pace = pace
        self._slow_pace = slow_pace
        self._patience = patience
        self._sleep = sleep
        self._now = now

    async def complete(self, request: ModelRequest) -> bytes:
        """Answer at once; see ChatModel."""
        answer = answer_to(request)
        if answer.is_slow:
            await self._sleep(self._slow_pace * len(answer.deltas))
        await self._end(answer)
        if answer.ending is Ending.CUT:
            raise MalformedAnswer(_CUT)
        choice = {"index": 0, "message": _message(answer), "finish_reason": answer.finish_reason}
        whole = self._answer("chat.completion", request, [choice])
        return msgspec.json.encode({**whole, "usage": answer.usage})

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Answer word by word; see ChatModel."""
        answer = answer_to(request)
        if answer.ending is Ending.FAILS and not answer.deltas:
            raise ModelUnavailable(_FAILED)
        chunks = self._chunks(request, answer)
        try:
            yield chunks
        finally:
            await chunks.aclose()

    async def models(self) -> list[dict[str, Any]]:
        """List the only model; see ChatModel."""
        return [{"id": "demo", "object": "model", "created": 0, "owned_by": "turnledger"}]

    async def close(self) -> None:
        """Do nothing."""

    async def _chunks(self, request: ModelRequest, answer: DemoAnswer) -> AsyncGenerator[list[bytes], None]:
        pace = self._slow_pace if answer.is_slow else self._pace
        wants_usage = _wants_usage(request.stream_options)
        usage: dict[str, Any] = {"usage": None} if wants_usage else {}  # as OpenAI: null until the last
        yield self._chunk(request, {"role": "assistant", "content": ""}, **usage)
        for delta in answer.deltas:
            await self._sleep(pace)
            yield self._chunk(request, delta, **usage)
        await self._end(answer)
        if answer.ending is Ending.CUT:
            return
        yield self._chunk(request, {}, answer.finish_reason, **usage)
        if wants_usage:
            whole = self._answer("chat.completion.chunk", request, [])
            yield [msgspec.json.encode({**whole, "usage": answer.usage})]

    async def _end(self, answer: DemoAnswer) -> None:
        if answer.ending is Ending.FAILS:
            raise ModelUnavailable(_FAILED)
        if answer.ending is Ending.STALLS:
            await self._sleep(self._patience)
            raise ModelTimeout(_STALLED)

    def _chunk(
        self, request: ModelRequest, delta: dict[str, Any], finish_reason: str | None = None, **more: Any
    ) -> list[bytes]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return [msgspec.json.encode({**self._answer("chat.completion.chunk", request, [choice]), **more})]

    def _answer(self, kind: str, request: ModelRequest, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": "chatcmpl-demo",
            "object": kind,
            "created": int(self._now()),
            "model": request.settings.get("model", "demo"),
            "choices": choices,
        }


def _message(answer: DemoAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls = CallDeltas()
    for delta in answer.deltas:
        calls.add(delta.get("tool_calls", []))
        for name in ("content", "refusal", "reasoning_content"):
            if name in delta:
                message[name] = (message.get(name) or "") + delta[name]
    if gathered := calls.whole():
        message["tool_calls"] = gathered
    return message


def _wants_usage(options: Any) -> bool:
    options = decode_field(options)
    return isinstance(options, dict) and options.get("include_usage") is True
