"""The world outside the store: what clients asked and saw, what runners saw, what tools did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from turnledger.engine.turn.request import Queued
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.model.event import Event
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item, ItemLike
from turnledger.model.turn import OnBusy, OnFailure, OnStop, Turn, TurnKind
from turnledger.testing.loop import SimulatedLoop
from turnledger.testing.simulation.clients.briefing_options import SILENT, Briefing
from turnledger.testing.simulation.clients.transcript import SentHistory

if TYPE_CHECKING:
    from turnledger.testing.simulation.clients.readers import Listener

CLIENT_CALL = "client_call"
LEASE_TIME = 10.0
FOR_EVER = 100_000.0
TOO_LONG = 30.0
"""Seconds for which a process may stand still: longer than a lease."""
ANSWER = "answer to "
RESULT = "result of "
"""How the results of tools begin; their name follows."""


class ModelFailed(Exception):
    """The simulated model broke."""


class RequestKind(Enum):
    """What a request does that runs the model."""

    ASK = auto()
    EDIT = auto()
    REGENERATE = auto()
    RESEND = auto()


@dataclass(frozen=True)
class ClientRequest:
    """One request of a client. `token` is its text, and found nowhere else; a regeneration has no text of its
    own, and its token is found in what its model and tools say."""

    token: str
    conversation: str
    """A conversation_key, or the id of a fork."""
    idempotency_key: str | None
    tools: tuple[bool, ...]
    """One per tool call: whether it is read-only."""
    fails_at: tuple[int, ...]
    """For each execution in turn, the step at which the model breaks; -1 for never."""
    pace: float
    leaves_call: bool
    """Whether the model ends with a call for its client to answer."""
    answers_call: bool
    """Whether this request brings the result of such a call, and no message."""
    hangs: bool
    """Whether the model never comes to an end by itself."""
    is_late: bool
    """Whether its process stands still when the model has ended, for longer than others believe it alive."""
    in_parallel: bool
    """Whether the tools run side by side."""
    tool_breaks: int
    """Which tool raises after it has acted; -1 for none."""
    on_busy: OnBusy
    on_stop: OnStop
    on_failure: OnFailure
    by_key: bool
    """Whether begin itself goes from the conversation_key to the conversation."""
    kind: RequestKind = RequestKind.ASK
    instead_of: TurnId | None = None
    """The turn to be edited or regenerated; None for the last one."""
    briefing: Briefing = SILENT
    resent: SentHistory | None = None
    """The history that the request brings along, if it brings one."""
    is_interaction: bool = True
    """Whether it counts as use of the conversation."""
    words: str | None = None
    """What it says instead of its token; others may say the same."""

    @property
    def options(self) -> dict[str, Any]:
        """All that is said besides the input. Who sends a history says there what the instructions are."""
        return self.policies if self.resent else {**self.policies, **self.briefing.options}

    @property
    def policies(self) -> dict[str, Any]:
        return {
            "idempotency_key": self.idempotency_key,
            "on_busy": self.on_busy,
            "on_stop": self.on_stop,
            "on_failure": self.on_failure,
            **({} if self.is_interaction else {"interaction": False}),
        }

    @property
    def input(self) -> ItemLike:
        if self.answers_call:
            return {"type": "function_call_output", "call_id": CLIENT_CALL, "output": self.token}
        return self.text

    @property
    def text(self) -> str:
        return self.token if self.words is None else self.words

    @classmethod
    def draw(cls, random: Random, token: str, names: Sequence[str], *, acts: bool = False) -> ClientRequest:
        """Draw a request to one of these conversations; `acts` makes effects and failures likelier."""
        often = (0, 1, 1, 2) if acts else (0, 0, 0, 1, 2)
        tools = tuple(random.random() < (0.2 if acts else 0.4) for _ in range(random.choice(often)))
        is_late = random.random() < (0.25 if acts else 0.03)
        failing = 0.0 if is_late else 0.5 if acts else 0.35
        fails = tuple(
            len(tools) - random.randrange(len(tools) + 1) if random.random() < failing else -1
            for _ in range(4)
        )
        return cls(
            token=token,
            conversation=random.choice(names),
            idempotency_key=f"key {token}" if random.random() < 0.6 else None,
            tools=tools,
            fails_at=fails,
            pace=random.choice((0.0, 0.001, 0.05, 0.5, 4.0)),
            leaves_call=random.random() < 0.15,
            answers_call=False,
            hangs=False,
            is_late=is_late,
            in_parallel=random.random() < 0.4,
            tool_breaks=random.randrange(len(tools)) if tools and random.random() < 0.1 else -1,
            on_busy=random.choice((*[OnBusy.QUEUE] * 5, *OnBusy)),
            on_stop=random.choice((OnStop.KEEP, *OnStop)),
            on_failure=random.choice((*[OnFailure.SETTLE] * 4, *OnFailure)),
            by_key=random.random() < 0.3,
        )


Hidden: TypeAlias = frozenset[tuple[TurnId, int]]
"""Items that are hidden from models, or from users: their turns, and their places there."""


@dataclass(frozen=True)
class ModelView:
    """What a model was shown before it began: role and text of all messages, how many items those are among,
    and what was hidden at that moment."""

    messages: tuple[tuple[str | None, str], ...]
    items: int
    hidden: Hidden


@dataclass
class Run:
    """One execution of the runner, and how far it came."""

    ask: ClientRequest
    conversation: ConversationId
    history: tuple[TurnId, ...]
    view: ModelView | None = None
    has_emitted: bool = False
    is_finished: bool = False


@dataclass(frozen=True)
class Effect:
    """A tool acted."""

    ask: ClientRequest
    step: int
    attempt: TurnId
    conversation: ConversationId
    history: tuple[str, ...]
    """The history that led to it, by the names of its turns."""
    read_only: bool

    @property
    def name(self) -> str:
        return f"{self.ask.token}/{self.step}"


@dataclass(frozen=True)
class ClientView:
    """What a client was told."""

    ask: ClientRequest
    turn: TurnId | None
    body: bytes
    error: str
    conversation: ConversationId | None
    """Where the turn was committed."""
    answer: Turn | None = None


OBSERVED = (
    "recorded_stops",
    "stopped_in_queue",
    "waiting_since",
    "known_waiting",
    "begun_at",
    "begun_in",
    "begins",
    "places",
    "heads",
    "settled_by_begin",
    "moves",
    "moves_by_key",
    "forgotten_effects",
    "forks",
    "taken_over",
    "hidden_at_begin",
    "unseen_at_begin",
    "replaces",
    "repeats",
    "holders",
    "lost_answers",
    "used_at",
)
"""What the world knows from inside transactions; beside the flags."""


@dataclass
class World:
    """The append-log that the checker holds the store against."""

    requests: dict[TurnId, ClientRequest] = field(default_factory=dict)
    """Every attempt that was ever tried, and for which request."""
    runs: dict[TurnId, Run] = field(default_factory=dict)
    executions: dict[str, int] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    client_views: list[ClientView] = field(default_factory=list)
    events: dict[TurnId, list[Event]] = field(default_factory=dict)
    """The events of turns that went well, as they were told when they ran."""
    stops: list[tuple[TurnId, str]] = field(default_factory=list)
    recorded_stops: dict[TurnId, OnStop] = field(default_factory=dict)
    """Attempts that somebody asked to stop while they ran, with the policy that was recorded."""
    stopped_in_queue: set[TurnId] = field(default_factory=set)
    """Attempts that were stopped before they ran."""
    waiting_since: dict[TurnId, int] = field(default_factory=dict)
    """When attempts took their ticket, as a count of observed begins."""
    known_waiting: set[TurnId] = field(default_factory=set)
    """Attempts whose process was told of their ticket."""
    begun_at: dict[TurnId, tuple[int, str | None]] = field(default_factory=dict)
    """When attempts began, likewise, and under which idempotency_key."""
    begun_in: dict[TurnId, ConversationId] = field(default_factory=dict)
    """Where attempts began."""
    begins: int = 0
    places: dict[TurnId, tuple[BranchId, BranchId]] = field(default_factory=dict)
    """For attempts that began: the branch whose lane they hold, and the one that they commit to."""
    heads: dict[TurnId, TurnId | None] = field(default_factory=dict)
    """The head of that lane when they began."""
    forgotten_effects: set[str] = field(default_factory=set)
    """Effects that an undo was told to forget."""
    shown_at_rest: dict[ConversationId, frozenset[str]] = field(default_factory=dict)
    """Effects that the model of the checker's own turn was shown, by conversation."""
    settled_by_begin: set[TurnId] = field(default_factory=set)
    """Attempts whose effects were waiting when a turn began behind them, or the conversation moved."""
    moves: Counter[TurnId] = field(default_factory=Counter)
    """How often each undo and each switch has moved a conversation."""
    moves_by_key: Counter[str] = field(default_factory=Counter)
    """How often that was done under each idempotency_key."""
    probes: set[TurnId] = field(default_factory=set)
    """Turns by which the checker itself tried whether lanes take one more."""
    forks: dict[ConversationId, tuple[Turn, ...]] = field(default_factory=dict)
    """The turns that forks began with."""
    opened: dict[tuple[str, int], set[ConversationId]] = field(default_factory=dict)
    """Per conversation_key and generation (deletions and resets so far): the ids that clients were given."""
    successors: dict[ConversationId, set[ConversationId]] = field(default_factory=dict)
    """By conversation: what took its place under its key, as those who reset it were told."""
    recorded_results: set[str] = field(default_factory=set)
    """Effects whose result was recorded, as their runner was told."""
    taken_over: set[TurnId] = field(default_factory=set)
    """Attempts that somebody else than their holder ended."""
    records_model_views: bool = False
    """Whether it is noted what models are shown: only where something is hidden, instructed or left out."""
    flags: dict[TurnId, dict[int, Flags]] = field(default_factory=dict)
    """The flags that were set, in the order of the transactions that set them."""
    hidden_at_begin: dict[TurnId, Hidden] = field(default_factory=dict)
    """What was hidden from models when attempts began."""
    unseen_at_begin: dict[TurnId, Hidden] = field(default_factory=dict)
    """What was hidden from users when attempts began, on the lines that resent histories are read against."""
    replaces: dict[TurnId, TurnId] = field(default_factory=dict)
    """For attempts that diverge: the turn whose place they take."""
    repeats: set[TurnId] = field(default_factory=set)
    """Attempts that ask the question of that turn again, with what is hidden of it."""
    wrong_json: list[TurnId] = field(default_factory=list)
    """Attempts whose messages were others as JSON."""
    listeners: list[Listener] = field(default_factory=list)
    """Who read the events of turns while they ran."""
    holders: dict[TurnId, LeaseId] = field(default_factory=dict)
    """For attempts that began: the process that runs them."""
    ttl_ms: int | None = None
    """The `ttl` of the store: how long each conversation lives after its last use."""
    checks_expiry: bool = False
    """Whether it is noted what time ends: only where clocks jump, or conversations may lapse."""
    used_at: dict[ConversationId, float] = field(default_factory=dict)
    """When a turn last began or ended in conversations, by the true time."""
    tries: dict[TurnId, tuple[str, int]] = field(default_factory=dict)
    """Attempts of clients that retry without an idempotency_key: the message, and which try of it each is."""
    answered: dict[TurnId, list[str]] = field(default_factory=dict)
    """By turn: the messages of such clients that it was the answer to, as far as that arrived whole."""
    lost_answers: dict[str, tuple[TurnId, TurnId, int | None]] = field(default_factory=dict)
    """By the name of the request: an attempt whose answer is recorded as lost, and the try that lost it."""
    beats: dict[LeaseId, float] = field(default_factory=dict)
    """When processes last showed that they live."""
    dead: set[LeaseId] = field(default_factory=set)
    """The leases of processes that were killed."""
    violations: list[str] = field(default_factory=list)
    """What happened inside transactions, or to clients, and never may."""

    shown_turns: dict[tuple[ConversationId | None, TurnId | None], bytes] = field(default_factory=dict)
    """What clients saw of conversations that they read, by conversation and turn."""

    def snapshot(self) -> dict[str, Any]:
        """What was observed inside transactions so far."""
        return {name: copy(getattr(self, name)) for name in OBSERVED} | {
            "flags": {turn: dict(flags) for turn, flags in self.flags.items()}
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Forget what was observed inside transactions since: they were lost with the power."""
        for name, value in saved.items():
            setattr(self, name, value)
        self.runs = {id: run for id, run in self.runs.items() if id in self.begun_at}

    def note_result(self, result: object) -> None:
        """Note that this answer reached its process."""
        if isinstance(result, Queued):
            self.known_waiting.add(result.ticket.attempt)

    @property
    def hidden(self) -> Hidden:
        """What is hidden from models by now."""
        return frozenset(
            (turn, place)
            for turn, flags in self.flags.items()
            for place, each in flags.items()
            if not each.to_model
        )

    def is_later_try(self, attempt: TurnId, earlier: TurnId) -> bool:
        """Whether it is a later try of the same message, by a client that retries without a key."""
        (message, count), (other, count_before) = self.tries[attempt], self.tries[earlier]
        return message == other and count > count_before

    def note_beat(self, lease: LeaseId) -> None:
        self.beats[lease] = asyncio.get_running_loop().time()

    def note_burial(self, lease: LeaseId) -> None:
        """Note that a process was taken for dead, and whether it may have been: only being silent for a whole
        lease time looks like that."""
        silence = asyncio.get_running_loop().time() - self.beats[lease]
        if lease not in self.dead and silence < LEASE_TIME:
            self.violations.append(f"{lease} was taken for dead {silence:.1f} s after it beat")

    def was_taken_over(self, ask: ClientRequest) -> bool:
        """Whether an attempt of this request was ended by somebody else, so far."""
        return any(run.ask is ask and id in self.taken_over for id, run in self.runs.items())

    def unfinished_effects(self, turn: Turn) -> list[str]:
        """The effects of a turn that did not complete, by what its tools did and not by what it says."""
        if turn.kind is TurnKind.COMPLETED:
            return []
        # Those told to forget may have run before, in an attempt that nobody knows of any more.
        acted = {
            effect.name
            for effect in self.effects
            if not effect.read_only and effect.ask.on_failure is not OnFailure.FORGET
        }
        return [name for name in effects_in(turn) if name in acted]

    @property
    def reported_failed(self) -> set[str]:
        """Requests that were tried once, and whose client was told that nothing happened."""
        return {
            seen.ask.token
            for seen in self.client_views
            if seen.error not in ("", "commit_outcome_unknown") and seen.ask.idempotency_key is None
        }

    def runner(self, ask: ClientRequest, random: Random) -> SimulatedRunner:
        return SimulatedRunner(self, ask, random)


async def _stand_still() -> None:
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimulatedLoop):
        loop.current_process.pause(TOO_LONG)
    await asyncio.sleep(0)


def name_of(turn: Turn) -> str:
    """What a turn is told by, wherever it stands: a settled one by its first effect, since copies of it go
    along with edits."""
    acted = [effect_of(item) for item in turn.output if item.is_call]
    return acted[0] if acted and turn.kind is TurnKind.SETTLED else turn.id


def effects_in(turn: Turn) -> list[str]:
    """The effects that the calls of a turn had."""
    return [effect_of(item) for item in turn.output if item.is_call]


def effect_of(call: Item) -> str:
    """The name of the effect that a call had."""
    return str(call.fields["arguments"]).strip('"')


class SimulatedRunner:
    """Plays the model and the tools of one request."""

    def __init__(self, world: World, ask: ClientRequest, random: Random) -> None:
        self._world = world
        self._ask = ask
        self._random = random

    async def __call__(self, turn: RunningTurn) -> None:
        ask = self._ask
        self._check_json(turn)
        view = self._view(turn) if self._world.records_model_views else None
        run = Run(ask, turn.conversation.id, tuple(each.id for each in turn.history), view)
        self._world.runs[turn.id] = run
        execution = self._world.executions.get(ask.token, 0)
        self._world.executions[ask.token] = execution + 1
        breaks_at = ask.fails_at[min(execution, len(ask.fails_at) - 1)]
        if not turn.steps:
            turn.emit(f"thinking of {ask.token}. ")
        if ask.in_parallel and breaks_at != 0:
            await self._all_steps(turn)
        else:
            for step, read_only in enumerate(ask.tools):
                await self._pace()
                if step == breaks_at:
                    raise ModelFailed(ask.token)
                await self._step(turn, step, read_only)
        turn.emit(f"{ANSWER}{ask.token}: ")
        run.has_emitted = True
        await self._pace()
        if ask.hangs:
            await asyncio.sleep(FOR_EVER)
        if breaks_at >= len(ask.tools):
            raise ModelFailed(ask.token)
        turn.emit("done")
        if ask.leaves_call:
            await turn.add(
                {"type": "function_call", "call_id": CLIENT_CALL, "name": "ask", "arguments": "{}"}
            )
        run.is_finished = True
        if ask.is_late:
            await _stand_still()

    def _check_json(self, turn: RunningTurn) -> None:
        if msgspec.json.decode(turn.messages_json) != turn.messages:
            self._world.wrong_json.append(turn.id)

    def _view(self, turn: RunningTurn) -> ModelView:
        shown = turn._snapshot.shown(turn.input, ())
        messages = tuple((item.role, item.text) for item in shown if item.type == "message")
        return ModelView(messages, len(shown), self._world.hidden)

    async def _all_steps(self, turn: RunningTurn) -> None:
        """Run the tools side by side; when one fails, the others are cancelled."""
        steps = [
            asyncio.ensure_future(self._step(turn, step, read_only))
            for step, read_only in enumerate(self._ask.tools)
        ]
        try:
            await asyncio.gather(*steps)
        finally:
            for step in steps:
                step.cancel()
            await asyncio.gather(*steps, return_exceptions=True)

    async def _step(self, turn: RunningTurn, step: int, read_only: bool) -> None:
        """Run one tool. In a resumed turn, too: the call returns what is recorded of it."""
        name = f"{self._ask.token}/{step}"
        # Ids repeat from step to step where they may, as those of some models do.
        call_id = f"call_{step}" if self._ask.in_parallel else "call_0"
        call = {"type": "function_call", "call_id": call_id, "name": "act", "arguments": f'"{name}"'}

        async def act() -> str:
            history = tuple(name_of(each) for each in turn.history)
            self._world.effects.append(
                Effect(self._ask, step, turn.id, turn.conversation.id, history, read_only)
            )
            await self._pace()
            if step == self._ask.tool_breaks:
                raise ModelFailed(name)
            return RESULT + name

        result = await turn.call(call, act, read_only=read_only)
        if result.fields["output"] == RESULT + name:
            self._world.recorded_results.add(name)

    async def _pace(self) -> None:
        await asyncio.sleep(self._ask.pace * self._random.random())
