"""Count the instructions that conveniences of the server cost a turn, and a request that is passed through:
`python -m bench.conveniences`. Prints their shares.

Blocks of requests run alternately with a feature in use, and with it switched off or its code replaced. Each
has ten requests of a client that sends its whole history. Clients have no sockets, and a model's next chunk
arrives when the one before it was sent on, so that all blocks take the same steps.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import uvloop

from bench.http.__main__ import QUESTION, started
from bench.http.upstream import ANSWER, CALL, THOUGHTS
from turnledger import Ledger, Limits, chats
from turnledger.engine.attempt.idempotency import IdempotencyKey
from turnledger.engine.resend import match, transcript
from turnledger.engine.resend.transcript import ClientTranscript
from turnledger.engine.turn.policies import OnDisconnect, Policies
from turnledger.engine.turn.resent_request import ResentRequest
from turnledger.engine.turn.validation import resent_request
from turnledger.model.item import Item
from turnledger.model.messages import projection
from turnledger.model.turn import OnBusy
from turnledger.runners.chat_runner import ChatRunner, RepeatFilter
from turnledger.runners.error_cleaner import ErrorCleaner
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import PASSED_PATHS, ChatSettings, Settings
from turnledger.server.models.models import Models, make_models
from turnledger.server.requests import turn as requests

REQUESTS = 10
"""Of a block: they are one conversation."""
TURN, PASSED, STREAMED_TURN, STREAMED_PASSED = (
    "turn",
    "pass-through",
    "streamed turn",
    "streamed pass-through",
)
KINDS = (TURN, PASSED, STREAMED_TURN, STREAMED_PASSED)
Message = dict[str, Any]
Patch = tuple[object, str, Any]
Headers = Sequence[tuple[bytes, bytes]]
digest_of = requests.digest_of


def _resent_without_yield(*given: Any) -> Any:
    given[-1]["gives_way"] = False
    return resent_request(*given)


def _no_digest(*given: Any) -> bytes:
    """Compute it nevertheless: the CPU that valgrind imitates has no instructions for SHA-256."""
    digest_of(*given)
    return b""


def _key_without_results(request: Any, other: IdempotencyKey) -> IdempotencyKey:
    sent = [request._sent, request._on_divergence, request._whole]
    body = msgspec.json.encode(sent, enc_hook=dict, order="deterministic")
    return IdempotencyKey(other.text, hashlib.sha256(other.fingerprint + body).digest())


# What clients send.


def question(number: int, *, is_newest: bool) -> str:
    return f"{number}: {QUESTION}"


def stamped(number: int, *, is_newest: bool) -> str:
    """As a tool writes questions that adds the date and its notes to all of them."""
    return f"<context>\nToday is 2026-01-{number + 1:02}.\n{NOTES}</context>\n\n{number}: {QUESTION}"


def newest_stamped(number: int, *, is_newest: bool) -> str:
    """The same of a tool that adds them only to the newest one."""
    return (stamped if is_newest else question)(number, is_newest=is_newest)


def files(number: int) -> list[Message]:
    """What a tool puts before the first question: files, which change from turn to turn."""
    text = (
        f"These are the files of the project, as they are now, and nothing else.\nversion = {number}\n{NOTES}"
    )
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]


class Client(NamedTuple):
    """A client that sends all messages so far with each request."""

    question: Callable[..., str] = question
    answer: str = ANSWER
    preamble: Callable[[int], list[Message]] = lambda _: []
    calls: bool = False
    """Whether each question needs two requests: its answer is a call, whose result the second one brings."""

    def conversation(self) -> Iterator[list[Message]]:
        """Yield the messages of each request."""
        per_question = 2 if self.calls else 1
        for place in range(REQUESTS):
            newest, step = divmod(place, per_question)
            messages = [{"role": "system", "content": "Answer in one sentence."}, *self.preamble(newest)]
            for number in range(newest + 1):
                is_newest = number == newest
                messages.append({"role": "user", "content": self.question(number, is_newest=is_newest)})
                if self.calls and (step or not is_newest):
                    messages.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
                    messages.append({"role": "tool", "tool_call_id": CALL["id"], "content": "on its way"})
                if not is_newest:
                    messages.append({"role": "assistant", "content": self.answer})
            yield messages


class Case(NamedTuple):
    settings: Mapping[str, Any] = MappingProxyType({})
    headers: Headers = ()
    name_header: bytes = b"x-conversation-id"
    patches: Sequence[Patch] = ()
    client: Client = Client()
    upstream: str = "paced"
    """The folder of the upstream; it decides how questions are answered."""
    path: str = "/v1/chat/completions"
    key_of: Callable[[int], int] | None = None
    """Returns the idempotency key of a request by its number."""


class Point(NamedTuple):
    """What is compared: a case with the feature, and one without it."""

    case: Case
    baseline: Case
    kinds: Collection[str] = KINDS


PLAIN = Case()


def replaced(*patches: Patch, case: Case = PLAIN, kinds: Collection[str] = KINDS) -> Point:
    """Compare a case with itself without the code of a feature."""
    return Point(case, case._replace(patches=patches), kinds)


NOTES = "The shop is closed today. " * 10
WHOLE_KINDS = (TURN, PASSED)
NO_CONTEXT: list[Patch] = [
    (ChatRunner, "__call__", ChatRunner._ask),
    (requests, "requested_context", lambda _: None),
    (Models, "context", lambda *_: None),
]
NO_DEFAULTS: Patch = (requests.PolicyDefaults, "complete", lambda _, given, *__: given)
NO_VIEW: Patch = (Models, "for_client", lambda _, model, __: model)
COUNTED = Case(headers=((b"x-stainless-retry-count", b"0"),))
CREDENTIAL = {"credential_header": "X-Upstream-Key"}
WITH_CREDENTIAL = ((b"x-upstream-key", b"sk-0123456789abcdef"),)
DEFAULTS = Policies(on_busy=OnBusy.QUEUE, on_disconnect=OnDisconnect.YIELD)
CHATS = ChatSettings(
    named_by=("base_url", "metadata.conversation_id", "user", "prompt_cache_key", "x-chat-id"),
    skip_when_header=("x-task", "x-other-task: title*"),
)
NO_PREAMBLE: list[Patch] = [
    (match, "_match_behind_preamble", lambda *_: None),
    (ResentRequest, "_trimmed", lambda *_: None),
]
NO_STAMPS: Patch = (ClientTranscript, "_is_framed_by", lambda *_: False)
NO_THOUGHTS: list[Patch] = [
    (transcript, "without_thoughts", lambda *_: None),
    (transcript, "remove_thoughts", lambda text: text),
    (projection, "remove_thoughts", lambda text: text),
]
NO_RESULTS: Patch = (ResentRequest, "key", _key_without_results)
PATHS = {"passed_paths": PASSED_PATHS}
FILES = Case(client=Client(preamble=files))
STAMPED = Case(client=Client(newest_stamped))
THINKING = Case(upstream="thinking", client=Client(answer=THOUGHTS + ANSWER))
STRIPPED = THINKING._replace(client=Client())
CALLING = Case(upstream="calling", client=Client(calls=True), key_of=lambda request: request)
SAME_CHUNKS: Patch = (RepeatFilter, "without_repeats", lambda _, payloads: payloads)
SAME_DELTAS: Patch = (RepeatFilter, "remove_repeats", lambda *_: False)
RAW_ERRORS: Patch = (ErrorCleaner, "clean_payloads", lambda _, payloads: payloads)
POINTS = {
    "context, without context_tokens": replaced(*NO_CONTEXT),
    "context_tokens, everything fits": Point(Case({"context_tokens": 100_000}), Case(patches=NO_CONTEXT)),
    "context_tokens, half of it fits": Point(Case({"context_tokens": 1_000}), Case(patches=NO_CONTEXT)),
    "yield": replaced((chats, "resent_request", _resent_without_yield)),
    "defaults of policies": Point(Case({"defaults": DEFAULTS}), Case(patches=[NO_DEFAULTS])),
    "names, and a rule to skip": Point(Case({"chats": CHATS}, name_header=b"x-chat-id"), Case()),
    "errors and retries": replaced(NO_VIEW, RAW_ERRORS, case=COUNTED),
    "repeated roles and names": replaced(SAME_CHUNKS, SAME_DELTAS),
    "empty answers": replaced((Item, "is_empty_answer", False)),
    "prefill and one-turn regeneration": replaced(
        (match, "begin_of_prefill", len), (match, "_asks_again", lambda *_: False)
    ),
    "the client's own credential, used": Point(
        Case(CREDENTIAL, WITH_CREDENTIAL), Case(headers=WITH_CREDENTIAL)
    ),
    "the client's own credential, not used": Point(Case(CREDENTIAL), Case()),
    "joins without a count": replaced((requests, "digest_of", _no_digest)),
    "passed paths, used": Point(Case(PATHS, path="/v1/embeddings"), Case(), [PASSED, STREAMED_PASSED]),
    "passed paths, not used": Point(Case(PATHS), Case()),
    "changed preambles, used": replaced(*NO_PREAMBLE, case=FILES, kinds=[TURN]),
    "changed preambles, not used": replaced(*NO_PREAMBLE, kinds=[TURN]),
    "changed preambles, of unchanged ones": Point(
        FILES, Case(client=Client(preamble=lambda _: files(0))), [TURN]
    ),
    "date stamps, used": replaced(NO_STAMPS, case=STAMPED, kinds=[TURN]),
    "date stamps, not used": replaced(NO_STAMPS, kinds=[TURN]),
    "date stamps, of stamps on all": Point(STAMPED, Case(client=Client(stamped)), [TURN]),
    "inline reasoning, used": replaced(*NO_THOUGHTS, case=STRIPPED, kinds=[TURN]),
    "inline reasoning, not used": replaced(*NO_THOUGHTS, kinds=[TURN]),
    "inline reasoning, of reasoning sent back": Point(STRIPPED, THINKING, [TURN]),
    "tool results by key, used": Point(
        CALLING._replace(key_of=lambda request: request // 2), CALLING, [TURN]
    ),
    "tool results by key, not used": replaced(
        NO_RESULTS, case=Case(key_of=lambda request: request), kinds=[TURN]
    ),
}


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    yield
    for owner, name, value in before:
        setattr(owner, name, value)


async def send(app: App, path: str, body: bytes, headers: Headers, pace: socket.socket | None = None) -> None:
    head = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *headers]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    received, sent = [{"type": "http.request", "body": body}], []

    async def receive() -> Any:
        return received.pop() if received else await asyncio.Event().wait()

    async def collect(message: Any) -> None:
        sent.append(message)
        if pace is not None and message.get("more_body"):
            pace.sendall(b"+")

    await app({**scope, "headers": head}, receive, collect)
    if sent[0]["status"] != 200:
        raise RuntimeError(sent)


def bodies(case: Case, kind: str) -> list[bytes]:
    """Return the requests of one conversation."""
    stream = {"stream": True} if kind.startswith("streamed") else {}
    return [
        json.dumps({"model": "m", "messages": messages, **stream}).encode()
        for messages in case.client.conversation()
    ]


def headers_of(case: Case, kind: str, conversation: str, number: int) -> Headers:
    found = list(case.headers)
    if kind.endswith(TURN):
        found.append((case.name_header, conversation.encode()))
    if case.key_of is not None:
        found.append((b"idempotency-key", b"%b-%d" % (conversation.encode(), case.key_of(number))))
    return found


async def run(store: str, upstream: str, rounds: int, only: str) -> None:
    """Run the blocks, and print what each was. A call of `getppid` ends a count."""
    pace = socket.create_connection(("127.0.0.1", int(upstream.rpartition(":")[2])))
    for place, (name, point) in enumerate(chosen(only).items()):
        # The rounds of recovery, two for each lease, would add to any block.
        async with await Ledger.open(store, limits=Limits(lease_time=3600.0)) as ledger:
            apps, cases = [], (point.case, point.baseline)
            for case in cases:
                settings = Settings(upstream=f"{upstream}/{case.upstream}/v1", proxy=False, **case.settings)
                apps.append(make_app(ledger, make_models(settings, {}), settings))
            order = [0, 1, 1, 0] * rounds
            for number, (side, kind) in enumerate((side, kind) for kind in point.kinds for side in order):
                case = cases[side]
                sent = bodies(case, kind)
                with patched(case.patches):
                    for part in range(2):  # the first adapts the interpreter to the patches
                        conversation = f"{place}-{number}-{part}"
                        gc.collect()
                        os.getppid()
                        for request, body in enumerate(sent):
                            headers = headers_of(case, kind, conversation, request)
                            await send(apps[side], case.path, body, headers, pace)
                        os.getppid()
                        print(json.dumps([name, kind, side, part]))


def chosen(only: str) -> dict[str, Point]:
    return {name: point for name, point in POINTS.items() if only in name}


def count(store: str, rounds: int, only: str) -> list[tuple[list[Any], int]]:
    """Return the blocks, and the instructions of each."""
    with tempfile.TemporaryDirectory() as folder, started("-m", "bench.http.upstream") as upstream:
        valgrind = ["valgrind", "--tool=callgrind", "--dump-before=getppid"]
        files = f"--callgrind-out-file={folder}/count"
        itself = [sys.executable, "-m", "bench.conveniences", "--store", store, "--rounds", str(rounds)]
        flags = ["--only", only, "--upstream", f"http://127.0.0.1:{upstream.port}"]
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        made = subprocess.run(
            [*valgrind, files, *itself, *flags], env=environ, check=False, text=True, capture_output=True
        )
        if made.returncode:
            sys.exit(made.stderr)
        counted = []
        for place, line in enumerate(made.stdout.splitlines()):
            text = Path(f"{folder}/count.{2 * place + 2}").read_text()
            counted.append((json.loads(line), int(text.rpartition("totals: ")[2])))
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.conveniences", description=__doc__)
    parser.add_argument("--store", default="memory:", help="the URL of the store (default: in memory)")
    parser.add_argument("--rounds", type=int, default=2, help="four blocks each")
    parser.add_argument("--only", default="", metavar="TEXT", help="the points with this text in their names")
    parser.add_argument("--counts", action="store_true", help="print instructions for each request, too")
    parser.add_argument("--upstream", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream:
        gc.disable()
        uvloop.run(run(options.store, options.upstream, options.rounds, options.only))
        return
    blocks = count(options.store, options.rounds, options.only)
    print(f"{'point':37}", *(f"{kind:>21}" for kind in KINDS))
    for name, point in chosen(options.only).items():
        columns = []
        for kind in KINDS:
            if kind not in point.kinds:
                columns.append("")
                continue
            # The lowest: what the server does besides, at times, only adds.
            sides = [min(n for block, n in blocks if block == [name, kind, side, 1]) for side in (0, 1)]
            counts = f"{sides[1] // REQUESTS:,} " if options.counts else ""
            columns.append(f"{counts}{sides[0] / sides[1] - 1:.1%}")
        print(f"{name:37}", *(f"{column:>21}" for column in columns))


if __name__ == "__main__":
    main()
