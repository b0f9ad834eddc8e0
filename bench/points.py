"""Count the instructions that conveniences of the server cost a turn, and a request that is passed through:
`python -m bench.points`. Prints their shares.

Blocks of requests run alternately with a feature in use, and with it switched off or its code replaced. Each
has ten requests of a client that sends its whole history. Answers are not streamed and clients have no
sockets, so that a feature is compared with as little as possible.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import uvloop

from bench.http.__main__ import QUESTION, started
from bench.http.upstream import CHUNKS
from turnledger import Ledger, chats
from turnledger.engine.resend import match
from turnledger.engine.turn.policies import OnDisconnect, Policies
from turnledger.engine.turn.validation import resent_request
from turnledger.model.item import Item
from turnledger.model.turn import OnBusy
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import ChatSettings, Settings
from turnledger.server.models.models import Models, make_models
from turnledger.server.requests import turn as requests

REQUESTS = 10
"""Of a block: they are one conversation."""
KINDS = ("turn", "pass-through")
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


class Case(NamedTuple):
    settings: Mapping[str, Any] = MappingProxyType({})
    headers: Headers = ()
    name_header: bytes = b"x-conversation-id"
    patches: Sequence[Patch] = ()


NO_CONTEXT: list[Patch] = [
    (ChatRunner, "__call__", ChatRunner._ask),
    (requests, "requested_context", lambda _: None),
    (Models, "context", lambda *_: None),
]
NO_DEFAULTS: Patch = (requests.PolicyDefaults, "complete", lambda _, given, *__: given)
NO_VIEW: Patch = (Models, "for_client", lambda _, model, __: model)
COUNTED = ((b"x-stainless-retry-count", b"0"),)
CREDENTIAL = ((b"x-upstream-key", b"sk-0123456789abcdef"),)
DEFAULTS = Policies(on_busy=OnBusy.QUEUE, on_disconnect=OnDisconnect.YIELD)
CHATS = ChatSettings(
    named_by=("base_url", "metadata.conversation_id", "user", "prompt_cache_key", "x-chat-id"),
    skip_when_header=("x-task", "x-other-task: title*"),
)
POINTS = {
    "context, without context_tokens": (Case(), Case(patches=NO_CONTEXT)),
    "context_tokens, everything fits": (Case({"context_tokens": 100_000}), Case(patches=NO_CONTEXT)),
    "context_tokens, half of it fits": (Case({"context_tokens": 2_000}), Case(patches=NO_CONTEXT)),
    "yield": (Case(), Case(patches=[(chats, "resent_request", _resent_without_yield)])),
    "defaults of policies": (Case({"defaults": DEFAULTS}), Case(patches=[NO_DEFAULTS])),
    "names, and a rule to skip": (Case({"chats": CHATS}, name_header=b"x-chat-id"), Case()),
    "errors and retries": (Case(headers=COUNTED), Case(headers=COUNTED, patches=[NO_VIEW])),
    "empty answers": (Case(), Case(patches=[(Item, "is_empty_answer", False)])),
    "prefill and one-turn regeneration": (
        Case(),
        Case(patches=[(match, "begin_of_prefill", len), (match, "_asks_again", lambda *_: False)]),
    ),
    "the client's own credential": (Case({"credential_header": "X-Upstream-Key"}, CREDENTIAL), Case()),
    "joins without a count": (Case(), Case(patches=[(requests, "digest_of", _no_digest)])),
}


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    yield
    for owner, name, value in before:
        setattr(owner, name, value)


def bodies() -> list[bytes]:
    """Return the requests of one conversation, each with all messages so far."""
    made, messages = [], [{"role": "system", "content": "Answer in one sentence."}]
    for number in range(REQUESTS):
        messages.append({"role": "user", "content": f"{number}: {QUESTION}"})
        made.append(json.dumps({"model": "m", "messages": messages}).encode())
        messages.append({"role": "assistant", "content": "word " * CHUNKS})
    return made


async def send(app: App, body: bytes, headers: Headers) -> None:
    head = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *headers]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b""}
    received, sent = [{"type": "http.request", "body": body}], []

    async def receive() -> Any:
        return received.pop() if received else await asyncio.Event().wait()

    async def collect(message: Any) -> None:
        sent.append(message)

    await app({**scope, "headers": head}, receive, collect)
    if sent[0]["status"] != 200:
        raise RuntimeError(sent)


async def run(store: str, upstream: str, rounds: int) -> None:
    """Run the blocks, and print what each was. A call of `getppid` ends a count."""
    for place, (name, cases) in enumerate(POINTS.items()):
        async with await Ledger.open(store) as ledger:
            apps = []
            for case in cases:
                settings = Settings(upstream=upstream, proxy=False, **case.settings)
                apps.append(make_app(ledger, make_models(settings, {}), settings))
            order = [0, 1, 1, 0] * rounds
            for number, (side, kind) in enumerate((side, kind) for kind in KINDS for side in order):
                with patched(cases[side].patches):
                    for part in range(2):  # the first adapts the interpreter to the patches
                        conversation = f"{place}-{number}-{part}".encode()
                        named = [(cases[side].name_header, conversation)] if kind == "turn" else []
                        gc.collect()
                        os.getppid()
                        for body in bodies():
                            await send(apps[side], body, [*named, *cases[side].headers])
                        os.getppid()
                        print(json.dumps([name, kind, side, part]))


def count(store: str, rounds: int) -> list[tuple[list[Any], int]]:
    """Return the blocks, and the instructions of each."""
    with tempfile.TemporaryDirectory() as folder, started("-m", "bench.http.upstream") as upstream:
        valgrind = ["valgrind", "--tool=callgrind", "--dump-before=getppid"]
        files = f"--callgrind-out-file={folder}/count"
        itself = [sys.executable, "-m", "bench.points", "--store", store, "--rounds", str(rounds)]
        command = [*valgrind, files, *itself, "--upstream", f"http://127.0.0.1:{upstream.port}/v1"]
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        made = subprocess.run(command, env=environ, check=True, text=True, capture_output=True)
        counted = []
        for place, line in enumerate(made.stdout.splitlines()):
            text = Path(f"{folder}/count.{2 * place + 2}").read_text()
            counted.append((json.loads(line), int(text.rpartition("totals: ")[2])))
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.points", description=__doc__)
    parser.add_argument("--store", default="memory:", help="the URL of the store (default: in memory)")
    parser.add_argument("--rounds", type=int, default=2, help="four blocks each")
    parser.add_argument("--upstream", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream:
        gc.disable()
        uvloop.run(run(options.store, options.upstream, options.rounds))
        return
    blocks = count(options.store, options.rounds)
    print(f"{'point':36} {'of a turn':>10} {'of a pass-through':>18}")
    for name in POINTS:
        shares = []
        for kind in KINDS:
            # The lowest: what the server does besides, at times, only adds.
            sides = [min(n for block, n in blocks if block == [name, kind, side, 1]) for side in (0, 1)]
            shares.append(sides[0] / sides[1] - 1)
        print(f"{name:36} {shares[0]:10.1%} {shares[1]:18.1%}")


if __name__ == "__main__":
    main()
