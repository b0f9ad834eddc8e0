"""A simulated process: its tasks and ready queue; pause, kill and death."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from turnledger.testing.kill import discard, free_without_running

if TYPE_CHECKING:
    from turnledger.testing.simulated_loop import SimulatedLoop

T = TypeVar("T")
current_owner = contextvars.ContextVar["SimulatedProcess | None"]("simulated process", default=None)
"""The process whose code is running; None for the simulator."""


class Future(asyncio.Future[T]):
    """A future with its process, so that errors of dead processes are ignored.

    Hashed by its number, not its address, so that sets of futures have the same order in every run: asyncio
    iterates over such sets, as when a task group cancels its tasks.
    """

    __slots__ = ("number", "process")

    def __init__(self, process: SimulatedProcess, number: int, *, loop: SimulatedLoop) -> None:
        self.process = process
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class Task(asyncio.Task[T]):
    """A task with its process, hashed by its number as Future is."""

    __slots__ = ("number", "process")

    def __init__(
        self, process: SimulatedProcess, number: int, coro: Coroutine[Any, Any, T], **options: Any
    ) -> None:
        self.process = process
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class Handle(asyncio.Handle):
    __slots__ = ("process", "task")
    process: SimulatedProcess
    task: asyncio.Task[Any] | None  # the task of which this is the next step


class Timer(asyncio.TimerHandle):
    __slots__ = ("process", "task")
    _scheduled: bool  # is in the heap
    process: SimulatedProcess
    task: asyncio.Task[Any] | None


AnyHandle = Handle | Timer
_METHODS_OF_TASKS = frozenset(dir(asyncio.Task))


def task_stepped_by(callback: Callable[..., object]) -> asyncio.Task[Any] | None:
    """Return the task that `callback` steps; None for other callbacks, such as `task.cancel`."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task) and getattr(callback, "__name__", None) not in _METHODS_OF_TASKS:
        return task
    return None


class ReadyQueue:
    """Ready handles of a process: the task steps that may run now, then all from the oldest callback on."""

    __slots__ = ("later", "steps")

    def __init__(self) -> None:
        self.steps: list[AnyHandle] = []
        self.later: deque[AnyHandle] = deque()  # empty, or begins with a callback

    def __bool__(self) -> bool:
        return bool(self.steps or self.later)

    def __iter__(self) -> Iterator[AnyHandle]:
        yield from self.steps
        yield from self.later

    def push(self, handle: AnyHandle) -> None:
        if self.later or handle.task is None:
            self.later.append(handle)
        else:
            self.steps.append(handle)

    def pop(self, rng: Callable[[], float], disorder: float) -> AnyHandle:
        steps, later = self.steps, self.later
        if len(steps) == 1 and not later:
            return steps.pop()
        choices = len(steps) + (1 if later else 0)
        chosen = int(rng() * choices) if choices > 1 and rng() < disorder else 0
        if chosen < len(steps):
            return steps.pop(chosen)
        callback = later.popleft()
        while later and later[0].task is not None:
            steps.append(later.popleft())
        return callback

    def clear(self) -> None:
        self.steps.clear()
        self.later.clear()


class SimulatedProcess:
    """A simulated operating-system process. Everything its tasks start belongs to it and dies with it.

    Create it with `SimulatedLoop.process`. Memory is not isolated: give each process its own objects.
    """

    def __init__(self, loop: SimulatedLoop, name: str, context: contextvars.Context) -> None:
        self.name = name
        self.alive = True
        self._loop = loop
        self._context = context.copy()
        self._context.run(current_owner.set, self)
        self._ready = ReadyQueue()
        self._paused_until: float | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}  # pending; a set has no replayable order
        self._tasks_created = 0
        self._failed: list[weakref.ref[asyncio.Task[Any]]] = []

    def __repr__(self) -> str:
        return f"<SimulatedProcess {self.name} {'alive' if self.alive else 'dead'}>"

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start `coro` as a task of this process, with the context variables the loop was created with.

        Raises RuntimeError if the process is dead.
        """
        if not self.alive:
            coro.close()
            raise RuntimeError(f"process {self.name} is dead")
        return self._loop.create_task(coro, name=name, context=self._context.copy())

    def kill(self) -> None:
        """End the process as `kill -9` does: none of its code runs any more, not even `finally` or `except`.

        Its tasks stay pending. A process that kills itself runs on to its next `await`, and the callbacks it
        schedules until then are dropped; prefer `await die()`. Raises ValueError for `main`.
        """
        self._check_not_main()
        self._end()

    async def die(self) -> NoReturn:
        """Kill the process from inside, at this `await`, which never returns."""
        if self._loop.current_process is not self:
            raise RuntimeError(f"die() must be called in process {self.name}; elsewhere use kill()")
        self.kill()
        await self._loop.never()

    def pause(self, seconds: float) -> None:
        """Suspend the process for this long, as SIGSTOP does; timers due meanwhile run late.

        Overlapping pauses last until the later end. A process that pauses itself runs on to its next `await`.
        Raises ValueError for `main`.
        """
        self._check_not_main()
        until = self._loop.time() + seconds
        if not self.alive or until <= max(self._loop.time(), self._paused_until or 0.0):
            return
        self._paused_until = until
        self._loop._update_runnable(self)
        self._loop.call_at(until, self._resume, context=self._loop._root._context)

    def _check_not_main(self) -> None:
        if self is self._loop._root:
            raise ValueError("the main process runs as long as the loop")

    def _resume(self) -> None:
        if self._paused_until is not None and self._paused_until <= self._loop.time():
            self._paused_until = None
            self._loop._update_runnable(self)

    def _end(self) -> None:
        self.alive = False
        self._loop._update_runnable(self)
        if self._loop._running_process is not self:
            self._bury()

    def _bury(self) -> None:
        """Free all suspended code without running or reporting any of it."""
        for handle in self._ready:
            discard(handle)
        self._ready.clear()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            asyncio.tasks._unregister_task(task)
        roots = [task.get_coro() for task in self._tasks]
        free_without_running([*roots, *self._loop._asyncgens_of(self)])
        self._tasks.clear()
