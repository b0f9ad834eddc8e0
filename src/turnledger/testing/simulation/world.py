"""The log outside the store: requests and answers of clients, views of runners, effects of tools."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.outcome import committed_turn
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.queue import Queued
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import TurnledgerError, TurnReplayed
from turnledger.model.event import Event
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item, ItemLike
from turnledger.model.turn import OnBusy, OnFailure, OnStop, Turn, TurnKind
from turnledger.testing.simulated_loop import SimulatedLoop
from turnledger.testing.simulation.clients.briefing_options import SILENT, Briefing
from turnledger.testing.simulation.clients.transcript import SentHistory

if TYPE_CHECKING:
    from turnledger.testing.simulation.clients.durable_work import AcknowledgedJob
    from turnledger.testing.simulation.clients.readers import Listener

CLIENT_CALL = "client_call"
CLIENT_TOOL_CALL = {"type": "function_call", "call_id": CLIENT_CALL, "name": "ask", "arguments": "{}"}
LEASE_TIME = 10.0
FOR_EVER = 100_000.0
FLUSHED_WITHIN = 1.0
"""Seconds after which the events of a turn are stored."""
TOO_LONG = 30.0
"""Seconds of a pause longer than a lease."""
ANSWER = "answer to "
RESULT = "result of "
"""Prefix of tool results; the name of the effect follows."""


class ModelFailed(Exception):
    pass


class RequestKind(Enum):
    TURN = auto()
    EDIT = auto()
    REGENERATE = auto()
    RESEND = auto()
    APPEND = auto()


@dataclass(frozen=True)
class ClientRequest:
    """One request of a client. `token` is its unique text; a regeneration has no text, and its token appears
    in the output of its model and tools."""

    token: str
    conversation: str
    """A conversation_key, or the id of a fork."""
    idempotency_key: str | None
    tools: tuple[bool, ...]
    """One per tool call: whether it is read-only."""
    fails_at: tuple[int, ...]
    """For each execution, the step at which the model fails; -1 for never."""
    pace: float
    leaves_call: bool
    """Whether the model ends with a call of a client tool."""
    answers_call: bool
    """Whether this request is the result of such a call."""
    hangs: bool
    """Whether the model never ends by itself."""
    is_late: bool
    """Whether its process pauses after the model ended, until others judge it dead."""
    in_parallel: bool
    tool_breaks: int
    """The tool that raises after it acted; -1 for none."""
    on_busy: OnBusy
    on_stop: OnStop
    on_failure: OnFailure
    by_key: bool
    """Whether begin itself resolves the conversation_key."""
    kind: RequestKind = RequestKind.TURN
    instead_of: TurnId | None = None
    """The turn to edit or regenerate; None for the last one."""
    after: TurnId | None = None
    """The turn to follow without waiting, on any branch."""
    briefing: Briefing = SILENT
    resent: SentHistory | None = None
    is_interaction: bool = True
    """Whether it counts as use of the conversation."""
    leaves_after: float | None = None
    """Seconds after which its client leaves, so that the turn may give way; None for never."""
    words: str | None = None
    """Its text instead of the token; other requests may have the same."""
    dies_at: tuple[int, ...] = ()
    """For each execution of a job, the step before which its process dies; -1 for never."""

    @property
    def options(self) -> dict[str, Any]:
        """All options besides the input. A resent history contains its instructions."""
        return self.policies if self.resent else {**self.policies, **self.briefing.options}

    @property
    def policies(self) -> dict[str, Any]:
        return {
            "idempotency_key": self.idempotency_key,
            "on_busy": self.on_busy,
            "on_stop": self.on_stop,
            "on_failure": self.on_failure,
            "details": {"request": self.token},
            **({} if self.is_interaction else {"interaction": False}),
            **({} if self.after is None else {"after": self.after}),
            **({} if self.leaves_after is None else {"gives_way": True}),
        }

    @property
    def input(self) -> ItemLike:
        if self.answers_call:
            return {"type": "function_call_output", "call_id": CLIENT_CALL, "output": self.token}
        return self.text

    @property
    def whole_turn(self) -> list[ItemLike]:
        """The items of a turn to append: they answer themselves."""
        answer: ItemLike = {"type": "message", "role": "assistant", "content": f"{ANSWER}{self.token}"}
        return [self.input, answer, *([CLIENT_TOOL_CALL] if self.leaves_call else [])]

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
"""Turn and place of each hidden item."""


@dataclass(frozen=True)
class ModelView:
    """The input of a model: role and text of all messages, the number of items, and what was hidden then."""

    messages: tuple[tuple[str | None, str], ...]
    items: int
    hidden: Hidden


@dataclass
class Run:
    """One execution of the runner."""

    request: ClientRequest
    conversation: ConversationId
    history: tuple[TurnId, ...]
    view: ModelView | None = None
    has_emitted: bool = False
    is_finished: bool = False


@dataclass(frozen=True)
class Effect:
    request: ClientRequest
    step: int
    attempt: TurnId
    conversation: ConversationId
    history: tuple[str, ...]
    """Names of the turns before it."""
    read_only: bool

    @property
    def name(self) -> str:
        return f"{self.request.token}/{self.step}"


@dataclass(frozen=True)
class ClientView:
    """The answer that a client received, and where it was committed; else the error."""

    request: ClientRequest
    answer: Turn | None = None
    conversation: ConversationId | None = None
    error: str = ""


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
    "read_at",
    "resumes",
    "left_by_closing",
    "deleted",
)
"""Fields recorded inside transactions, besides `flags`; a power loss rolls them back."""


@dataclass
class World:
    """The log that the checker compares the store with."""

    requests: dict[TurnId, ClientRequest] = field(default_factory=dict)
    """Every attempt, with its request."""
    runs: dict[TurnId, Run] = field(default_factory=dict)
    executions: dict[str, int] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    client_views: list[ClientView] = field(default_factory=list)
    events: dict[TurnId, list[Event]] = field(default_factory=dict)
    """Events of successful turns, as emitted."""
    stops: list[tuple[TurnId, str]] = field(default_factory=list)
    recorded_stops: dict[TurnId, OnStop] = field(default_factory=dict)
    """Attempts stopped while running, with the recorded policy."""
    stopped_in_queue: set[TurnId] = field(default_factory=set)
    waiting_since: dict[TurnId, int] = field(default_factory=dict)
    """When attempts took their ticket, counted in begins."""
    known_waiting: set[TurnId] = field(default_factory=set)
    """Attempts whose process received their ticket."""
    begun_at: dict[TurnId, tuple[int, str | None]] = field(default_factory=dict)
    """When attempts began, counted in begins, and their idempotency_key."""
    begun_in: dict[TurnId, ConversationId] = field(default_factory=dict)
    begins: int = 0
    places: dict[TurnId, tuple[BranchId, BranchId]] = field(default_factory=dict)
    """For attempts that began: the branch whose lane they hold, and the branch they commit to."""
    heads: dict[TurnId, TurnId | None] = field(default_factory=dict)
    """The head of the lane when they began."""
    forgotten_effects: set[str] = field(default_factory=set)
    """Effects that an undo forgot."""
    shown_at_rest: dict[ConversationId, frozenset[str]] = field(default_factory=dict)
    """Effects shown to the model of the checker's probe, by conversation."""
    settled_by_begin: set[TurnId] = field(default_factory=set)
    """Attempts whose effects were unsettled when the next turn began or the conversation moved."""
    moves: Counter[TurnId] = field(default_factory=Counter)
    """Moves by each undo and switch."""
    moves_by_key: Counter[str] = field(default_factory=Counter)
    """Moves by idempotency_key."""
    probes: set[TurnId] = field(default_factory=set)
    """Turns that the checker ran to test the lanes."""
    forks: dict[ConversationId, tuple[Turn, ...]] = field(default_factory=dict)
    """The turns that forks began with."""
    opened: dict[tuple[str, int], set[ConversationId]] = field(default_factory=dict)
    """Ids returned to clients, by conversation_key and generation (deletions and resets so far)."""
    successors: dict[ConversationId, set[ConversationId]] = field(default_factory=dict)
    """Conversations that resets returned, by the one they replaced."""
    recorded_results: set[str] = field(default_factory=set)
    """Effects whose recorded result reached the runner."""
    taken_over: set[TurnId] = field(default_factory=set)
    """Attempts that another process ended."""
    has_failed_over: bool = False
    lost_begins: set[str] = field(default_factory=set)
    """Requests whose begin a failover has lost."""
    lost_stops: dict[TurnId, OnStop] = field(default_factory=dict)
    """Recorded stops that a failover has lost; the process of the attempt may have read them before."""
    records_model_views: bool = False
    """Whether `Run.view` is set: only where items are hidden, instructed or left out."""
    flags: dict[TurnId, dict[int, Flags]] = field(default_factory=dict)
    """Flags, as set by the last transaction."""
    hidden_at_begin: dict[TurnId, Hidden] = field(default_factory=dict)
    """Items hidden from models when attempts began."""
    unseen_at_begin: dict[TurnId, Hidden] = field(default_factory=dict)
    """Items hidden from users when attempts with a resent history began."""
    replaces: dict[TurnId, TurnId] = field(default_factory=dict)
    """For attempts that diverge: the turn they replace."""
    repeats: set[TurnId] = field(default_factory=set)
    """Attempts that repeat the question of that turn, with its flags."""
    wrong_json: list[TurnId] = field(default_factory=list)
    """Attempts whose JSON messages differ from the list."""
    listeners: list[Listener] = field(default_factory=list)
    holders: dict[TurnId, LeaseId] = field(default_factory=dict)
    """Leases of the processes that run the attempts."""
    ttl_ms: int | None = None
    checks_expiry: bool = False
    """Set only where clocks jump or conversations may lapse."""
    used_at: dict[ConversationId, float] = field(default_factory=dict)
    """True time of the last begin or end of a turn, by conversation."""
    left: set[TurnId] = field(default_factory=set)
    """Turns whose client has left."""
    read_at: dict[TurnId, float] = field(default_factory=dict)
    """True time of the last sign of a reader in another process."""
    tries: dict[TurnId, tuple[str, int]] = field(default_factory=dict)
    """Attempts of clients without idempotency_keys: the message, and the count of the try."""
    answered: dict[TurnId, list[str]] = field(default_factory=dict)
    """Messages of such clients that received the turn whole."""
    lost_answers: dict[str, tuple[TurnId, TurnId, int | None]] = field(default_factory=dict)
    """By request: the attempt whose answer is recorded as lost, the try that lost it, and its expiry."""
    jobs: dict[str, ClientRequest] = field(default_factory=dict)
    """Requests of durable work, by token."""
    enqueued: set[TurnId] = field(default_factory=set)
    """Attempts that are durable work: their events are shown once they are stored."""
    acknowledged_jobs: list[AcknowledgedJob] = field(default_factory=list)
    deleted: set[ConversationId] = field(default_factory=set)
    """Conversations that were deleted, maybe restored since."""
    resumes: Counter[TurnId] = field(default_factory=Counter)
    """How often each job was resumed."""
    left_by_closing: Counter[TurnId] = field(default_factory=Counter)
    """How often a closed ledger left each job to be resumed, which uses up none of its resumes."""
    beats: dict[LeaseId, float] = field(default_factory=dict)
    """Time of the last beat."""
    dead: set[LeaseId] = field(default_factory=set)
    """Leases of killed processes."""
    violations: list[str] = field(default_factory=list)
    """Problems found while the schedule runs."""
    shown_turns: dict[tuple[ConversationId, TurnId], bytes] = field(default_factory=dict)
    """Bodies of turns that clients read."""

    def snapshot(self) -> dict[str, Any]:
        """Copy the fields recorded inside transactions."""
        return {name: copy(getattr(self, name)) for name in OBSERVED} | {
            "flags": {turn: dict(flags) for turn, flags in self.flags.items()}
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Roll back to a snapshot, after a power loss."""
        for name, value in saved.items():
            setattr(self, name, value)
        self.runs = {id: run for id, run in self.runs.items() if id in self.begun_at}

    def note_result(self, result: object) -> None:
        """Record that this result reached its process."""
        if isinstance(result, Queued):
            self.known_waiting.add(result.ticket.attempt)

    @property
    def hidden(self) -> Hidden:
        """Items hidden from models at present."""
        return frozenset(
            (turn, place)
            for turn, flags in self.flags.items()
            for place, each in flags.items()
            if not each.to_model
        )

    def is_later_try(self, attempt: TurnId, earlier: TurnId) -> bool:
        """Return whether it is a later try of the same message, without an idempotency_key."""
        (message, count), (other, count_before) = self.tries[attempt], self.tries[earlier]
        return message == other and count > count_before

    def note_beat(self, lease: LeaseId) -> None:
        self.beats[lease] = asyncio.get_running_loop().time()

    def note_burial(self, lease: LeaseId) -> None:
        """Record that a process was judged dead: a violation unless it died or missed a whole lease time."""
        silence = asyncio.get_running_loop().time() - self.beats[lease]
        # A failover may lose beats, so that they seem to stand still.
        if lease not in self.dead and silence < LEASE_TIME and not self.has_failed_over:
            self.violations.append(f"{lease} was judged dead {silence:.1f} s after its last beat")

    def stops_of(self, attempt: TurnId) -> tuple[OnStop | None, ...]:
        """Return the policies by which it may have been stopped."""
        return self.recorded_stops.get(attempt), self.lost_stops.get(attempt)

    def was_taken_over(self, request: ClientRequest) -> bool:
        """Return whether another process has ended an attempt of this request."""
        if request.token in self.lost_begins:
            return True
        return any(run.request is request and id in self.taken_over for id, run in self.runs.items())

    def unfinished_effects(self, turn: Turn) -> list[str]:
        """Return the effects in an incomplete turn that really happened."""
        if turn.kind is TurnKind.COMPLETED:
            return []
        # With on_failure=forget, they may have happened in an earlier attempt.
        acted = {
            effect.name
            for effect in self.effects
            if not effect.read_only and effect.request.on_failure is not OnFailure.FORGET
        }
        return [name for name in effects_in(turn) if name in acted]

    @property
    def reported_failed(self) -> set[str]:
        """Requests tried once whose client received a definite failure."""
        return {
            view.request.token
            for view in self.client_views
            if view.error not in ("", "commit_outcome_unknown") and view.request.idempotency_key is None
        }

    def note_answer(self, request: ClientRequest, answer: Turn) -> None:
        self.client_views.append(ClientView(request, answer, self.begun_in[answer.id]))

    def note_failure(self, request: ClientRequest, problem: TurnledgerError | ModelFailed) -> None:
        code = problem.code if isinstance(problem, TurnledgerError) else "model_failed"
        self.client_views.append(ClientView(request, error=code))

    async def run_block(self, block: TurnBlock, request: ClientRequest, random: Random) -> Turn:
        """Run the model of a request in its block, unless another try has its turn."""
        try:
            async with block as running:
                await self.runner(request, random)(running)
        except TurnReplayed as replay:
            return replay.turn
        return committed_turn(Outcome(running.state, running.turn))

    def runner(self, request: ClientRequest, random: Random) -> SimulatedRunner:
        return SimulatedRunner(self, request, random, _stand_still)

    async def run_job(self, turn: RunningTurn, random: Random, crash: Crash) -> None:
        """Run durable work, whose request is known by its details."""
        await SimulatedRunner(self, self.jobs[turn.details["request"]], random, crash)(turn)


async def _stand_still() -> None:
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimulatedLoop):
        loop.current_process.pause(TOO_LONG)
    await asyncio.sleep(0)


def name_of(turn: Turn) -> str:
    """Return a name that copies share: of a settled turn its first effect, else the id."""
    acted = [effect_of(item) for item in turn.output if item.is_call]
    return acted[0] if acted and turn.kind is TurnKind.SETTLED else turn.id


def effects_in(turn: Turn) -> list[str]:
    return [effect_of(item) for item in turn.output if item.is_call]


def effect_of(call: Item) -> str:
    return str(call.fields["arguments"]).strip('"')


Crash: TypeAlias = Callable[[], Awaitable[None]]
"""Kills the process of a runner."""


class SimulatedRunner:
    def __init__(self, world: World, request: ClientRequest, random: Random, crash: Crash) -> None:
        self._world = world
        self._request = request
        self._random = random
        self._crash = crash

    async def __call__(self, turn: RunningTurn) -> None:
        request = self._request
        self._check_json(turn)
        view = self._view(turn) if self._world.records_model_views else None
        run = Run(request, turn.conversation.id, tuple(each.id for each in turn.history), view)
        earlier = self._world.runs.get(turn.id)
        if earlier is None or not earlier.is_finished:  # that of a job may be finished in another process
            self._world.runs[turn.id] = run
        execution = self._world.executions.get(request.token, 0)
        self._world.executions[request.token] = execution + 1
        breaks_at = request.fails_at[min(execution, len(request.fails_at) - 1)]
        if not turn.steps:
            turn.emit_reasoning(f"What is {request.token}? ")
            turn.emit(f"thinking of {request.token}. ")
            if request.dies_at:
                turn.emit(f"Try {execution}. ")  # a model does not repeat itself word by word
            turn.emit_reasoning("Well.")
            if request.token in self._world.jobs:
                turn.emit_refusal(f" No more of {request.token}. ")  # a word apart, wherever it ends up
        if request.in_parallel and breaks_at != 0:
            await self._all_steps(turn)
        else:
            for step, read_only in enumerate(request.tools):
                self._begin_call(turn, step)
                await self._pace()
                if execution < len(request.dies_at) and step == request.dies_at[execution]:
                    if execution == 0:
                        await asyncio.sleep(FLUSHED_WITHIN)
                    await self._crash()
                if step == breaks_at:
                    raise ModelFailed(request.token)
                await self._step(turn, step, read_only)
        turn.emit_reasoning("So: ")
        turn.emit(f"{ANSWER}{request.token}: ")
        run.has_emitted = True
        await self._pace()
        if request.hangs:
            await asyncio.sleep(FOR_EVER)
        if breaks_at >= len(request.tools):
            raise ModelFailed(request.token)
        turn.emit("done")
        if request.leaves_call:
            await turn.add(CLIENT_TOOL_CALL)
        run.is_finished = True
        self._world.runs[turn.id] = run
        if request.is_late:
            await _stand_still()

    def _check_json(self, turn: RunningTurn) -> None:
        if msgspec.json.decode(turn.messages_json) != turn.messages:
            self._world.wrong_json.append(turn.id)

    def _view(self, turn: RunningTurn) -> ModelView:
        shown = turn._snapshot.shown(turn.input, ())
        messages = tuple((item.role, item.text) for item in shown if item.type == "message")
        return ModelView(messages, len(shown), self._world.hidden)

    async def _all_steps(self, turn: RunningTurn) -> None:
        """Run the tools concurrently; when one fails, cancel the others."""
        for number in range(len(self._request.tools)):
            self._begin_call(turn, number)
        steps = [
            asyncio.ensure_future(self._step(turn, step, read_only))
            for step, read_only in enumerate(self._request.tools)
        ]
        try:
            await asyncio.gather(*steps)
        finally:
            for step in steps:
                step.cancel()
            await asyncio.gather(*steps, return_exceptions=True)

    def _call_id(self, step: int) -> str:
        """Return the id of a call. Sequential calls repeat it, as those of some models do."""
        return f"call_{step}" if self._request.in_parallel else "call_0"

    def _begin_call(self, turn: RunningTurn, step: int) -> None:
        """Stream the first half of a call: a turn that ends here drops it."""
        turn.begin_call(self._call_id(step), "act")
        turn.emit_arguments(self._call_id(step), '"')

    async def _step(self, turn: RunningTurn, step: int, read_only: bool) -> None:
        """Run one tool; in a resumed turn the call returns the recorded result."""
        name = f"{self._request.token}/{step}"
        call_id = self._call_id(step)
        call = {"type": "function_call", "call_id": call_id, "name": "act", "arguments": f'"{name}"'}
        turn.emit_arguments(call_id, f'{name}"')

        async def act() -> str:
            history = tuple(name_of(each) for each in turn.history)
            self._world.effects.append(
                Effect(self._request, step, turn.id, turn.conversation.id, history, read_only)
            )
            await self._pace()
            if step == self._request.tool_breaks:
                raise ModelFailed(name)
            return RESULT + name

        result = await turn.call(call, act, read_only=read_only)
        if result.fields["output"] == RESULT + name:
            self._world.recorded_results.add(name)

    async def _pace(self) -> None:
        await asyncio.sleep(self._request.pace * self._random.random())
