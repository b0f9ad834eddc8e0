"""Choices of the operation machine."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.stateful.names import CONVERSATION_KEYS, IDEMPOTENCY_KEYS, LEASES, OWNERS, SCOPES
from tests.unit.model.shapes import result, user
from turnledger.model.item import message
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.turn import Failure, Instructions, OnBusy, OnFailure, OnStop

BROKEN = Failure("error", "it broke")
INPUTS = [(user(),), (user("another"),), (result("01-0"),), (user(" "),), (user(), result("02-0"))]
INSTRUCTIONS = [Instructions(()), *(Instructions((message("system", "Hm"),), each) for each in (True, False))]

# Mostly one conversation of one owner, so that operations interact.
owners = st.sampled_from([OWNERS[0]] * 9 + [OWNERS[1]])
places = st.sampled_from([0] * 9 + [1, 2, 3])
aims = st.sampled_from([CONVERSATION_KEYS[0]] * 4 + [CONVERSATION_KEYS[1]]) | places
keys = st.none() | st.sampled_from(CONVERSATION_KEYS)
scopes = st.sampled_from([SCOPES[0]] * 4 + [SCOPES[1]])
narrowed = st.sampled_from([None] * 5 + [*SCOPES])
leases = st.sampled_from(LEASES)
picks = st.sampled_from([0, 0, 1, 2, 5])
late = st.sampled_from([0] * 7 + [1])
on_stop = st.none() | st.sampled_from(OnStop)
policies = st.fixed_dictionaries(
    {
        "on_busy": st.sampled_from([OnBusy.QUEUE] * 3 + [*OnBusy]),
        "on_stop": st.sampled_from(OnStop),
        "instructions": st.sampled_from([None] * 5 + INSTRUCTIONS),
        "on_failure": st.sampled_from([OnFailure.SETTLE] * 3 + [*OnFailure]),
        "is_interaction": st.sampled_from([True] * 3 + [False]),
    }
)
reset_policies = st.sampled_from([ResetPolicy.never(), ResetPolicy.idle(2), ResetPolicy.daily(0)])
failures = st.sampled_from([BROKEN, BROKEN, None])
step = st.sampled_from(["text", "call", "call", "start", "start", "start reading", "result", "think"])
steps = st.lists(step, max_size=5) | st.just(["call", "start", "think"])
BEGINNING: dict[str, st.SearchStrategy[Any]] = {
    "owner": owners,
    "where": aims,
    "scope": scopes,
    "within": narrowed,
    "lease": leases,
    "input": st.sampled_from([INPUTS[0]] * 5 + INPUTS),
    "policies": policies,
    "key": st.none() | st.sampled_from(IDEMPOTENCY_KEYS),
    "body": st.sampled_from([b"the same"] * 5 + [b"another"]),
    "what": steps,
    "then": st.sampled_from(["leave"] * 3 + ["commit", "fail", "fail", "stop"]),
}
times = st.sampled_from([0, 1, 1_000, 3_000, 25 * 60 * 60 * 1000])
ELSEWHERE: dict[str, st.SearchStrategy[Any]] = {
    **BEGINNING,
    "back": st.sampled_from([0, 0, 1, 2, 5]),
    "regenerates": st.booleans(),
    "shown": st.sampled_from([True] * 5 + [False]),
}
SUCCESSFUL: dict[str, st.SearchStrategy[Any]] = {
    **ELSEWHERE,
    "owner": st.just(OWNERS[0]),
    "where": st.sampled_from([0] * 5 + [2, 3]),
    "input": st.just(INPUTS[0]),
    "key": st.sampled_from([None, None, None, *IDEMPOTENCY_KEYS]),
    "then": st.sampled_from(["commit"] * 3 + ["leave", "fail", "stop"]),
}
