"""Run asyncio code as simulated processes: virtual time, seeded scheduling, and a true `kill -9`.

    loop = SimulatedLoop(seed=7)
    server = loop.process("server")
    server.spawn(serve())
    loop.run_until_complete(scenario())   # may call server.pause(30) or server.kill()
    loop.close()
    assert not loop.errors

The schedule. Each step first picks, at random, one of the processes that have something ready. Within a
process the choice is between its oldest ready callback and the task steps that became ready before it:

- callbacks run in the order in which they were registered, as asyncio promises;
- a task step never overtakes a callback registered before it, so done callbacks still run before the awaiter;
- a task step may be delayed arbitrarily, as if its task had become ready later.

The loop's `disorder` is how often the choice departs from first-in first-out. It is drawn from the seed, so
some seeds run as production does and others run wild. Timers due at the same instant become ready in random
order. Virtual time advances only when nothing is ready.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import random
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple

from turnledger.testing.kill import discard, require_supported_interpreter
from turnledger.testing.process import (
    AnyHandle,
    Future,
    Handle,
    SimulatedProcess,
    Task,
    Timer,
    current_owner,
    task_stepped_by,
)

if TYPE_CHECKING:
    # Type checkers refuse to instantiate a subclass of AbstractEventLoop without sockets.
    _EventLoop = asyncio.BaseEventLoop
else:
    _EventLoop = asyncio.AbstractEventLoop

__all__ = ["Deadlock", "Livelock", "SimulatedLoop", "SimulatedProcess", "UnhandledError"]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_ErrorContext = dict[str, Any]
_ExceptionHandler = Callable[[asyncio.AbstractEventLoop, _ErrorContext], object]
_DISORDERS = (0.0, 0.1, 0.5, 1.0)
_STEPS_BETWEEN_COLLECTIONS = 1 << 16


class Deadlock(Exception):
    """No callback is ready and no timer pending; `tasks` names the waiting tasks of living processes."""

    def __init__(self, tasks: list[str]) -> None:
        super().__init__(f"nothing will ever run again; waiting: {', '.join(tasks) or 'no task'}")
        self.tasks = tasks


class Livelock(Exception):
    """A run exceeded the step limit of the loop."""


@dataclass(frozen=True)
class UnhandledError:
    process: str
    message: str
    exception: BaseException | None
    time: float


class SimulatedLoop(_EventLoop):
    """An event loop in virtual time, without threads or I/O: the same seed gives the same schedule.

    `errors` lists the unhandled errors of living processes; it is complete once the loop is closed.
    `steps` counts the handles run so far. Each run may take `step_limit` of them.
    Garbage is collected at fixed steps only, since freeing an object can schedule work.
    """

    def __init__(
        self,
        seed: int | random.Random,
        *,
        start: float = 0.0,
        step_limit: int = 1_000_000,
        disorder: float | None = None,
    ) -> None:
        require_supported_interpreter()
        self.errors: list[UnhandledError] = []
        self.steps = 0
        self.step_limit = step_limit
        rng = seed if isinstance(seed, random.Random) else random.Random(seed)
        self._random = rng.random
        self._disorder = rng.choice(_DISORDERS) if disorder is None else disorder
        self._now = start
        self._timers: list[tuple[float, float, int, Timer]] = []
        self._timers_created = 0
        self._futures_created = 0
        self._timers_cancelled = 0
        self._context = contextvars.copy_context()
        self._root = SimulatedProcess(self, "main", self._context)
        self._living = [self._root]
        self._runnable: list[SimulatedProcess] = []
        self._running_process = self._root
        # Keyed by id: weak references to a generator are cleared before its finalizer hook runs.
        self._asyncgens: dict[int, tuple[weakref.ref[AsyncGenerator[Any, Any]], SimulatedProcess]] = {}
        self._thread = threading.get_ident()
        self._running = self._stopping = self._closed = self._debug = False
        self._task_factory: Any = None
        self._exception_handler: _ExceptionHandler | None = None

    # Processes

    def process(self, name: str) -> SimulatedProcess:
        """Create a process; raises ValueError if a living one has the name."""
        self._check_open()
        if any(process.name == name for process in self._living):
            raise ValueError(f"process {name} is alive")
        process = SimulatedProcess(self, name, self._context)
        self._living.append(process)
        return process

    @property
    def current_process(self) -> SimulatedProcess:
        """The process whose code is running; that of the simulator is `main`."""
        return current_owner.get() or self._root

    def _process_of(self, context: contextvars.Context | None) -> SimulatedProcess:
        return (current_owner.get() if context is None else context.get(current_owner)) or self._root

    async def never(self) -> NoReturn:
        """Wait until cancelled."""
        await self.create_future()
        raise AssertionError("unreachable")

    def _update_runnable(self, process: SimulatedProcess) -> None:
        runnable = process.alive and process._paused_until is None and bool(process._ready)
        if runnable and process not in self._runnable:
            self._runnable.append(process)
        elif not runnable and process in self._runnable:
            self._runnable.remove(process)
        if not process.alive and process in self._living:
            self._living.remove(process)

    # Running

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until `future` is done and return its result.

        Raises Deadlock if it cannot be done, and Livelock past the step limit.
        """
        self._check_open()
        if self._running:
            raise RuntimeError("this loop is already running")
        is_ours = not asyncio.isfuture(future)
        waited: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        waited.add_done_callback(self._stop_when_done)
        try:
            self.run_forever()
        except BaseException:
            if is_ours and waited.done() and not waited.cancelled():
                waited.exception()  # avoids "exception was never retrieved"
            raise
        finally:
            waited.remove_done_callback(self._stop_when_done)
        if not waited.done():
            raise RuntimeError("the loop was stopped before the future was done")
        return waited.result()

    def run_forever(self) -> None:
        """Run up to the step that calls `stop`. Raises Deadlock and Livelock."""
        self._check_open()
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a loop is already running in this thread")
        collecting, hooks = gc.isenabled(), sys.get_asyncgen_hooks()
        gc.disable()
        sys.set_asyncgen_hooks(firstiter=self._adopt_asyncgen, finalizer=self._finalize_asyncgen)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            self._run_steps()
        finally:
            self._running = self._stopping = False
            self._running_process = self._root
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def _run_steps(self) -> None:
        rng, disorder, runnable = self._random, self._disorder, self._runnable
        last_step = self.steps + self.step_limit
        while not self._stopping:
            if not runnable:
                self._advance()
                continue
            process = runnable[int(rng() * len(runnable))] if len(runnable) > 1 else runnable[0]
            handle = process._ready.pop(rng, disorder)
            if not process._ready:
                runnable.remove(process)
            if handle._cancelled:
                continue
            if self.steps >= last_step:
                raise Livelock(f"not done after {self.step_limit} steps")
            self.steps += 1
            self._running_process = process
            handle._run()
            if handle.task is not None and handle.task.done():
                self._retire(handle.task, process)
            if not process.alive:
                process._bury()
            self._running_process = self._root
            if self.steps % _STEPS_BETWEEN_COLLECTIONS == 0:
                gc.collect()

    def _advance(self) -> None:
        """Advance time to the next timer and make all due timers ready."""
        timers = self._timers
        due: float | None = None
        while timers and (due is None or timers[0][0] <= due):
            when, _, _, timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._timers_cancelled -= 1
            elif timer.process.alive:
                due = self._now = max(self._now, when)
                self._make_ready(timer)
        if due is None:
            raise Deadlock([task.get_name() for process in self._living for task in process._tasks])

    def _make_ready(self, handle: AnyHandle) -> None:
        process = handle.process
        if process.alive and self._running_process.alive:
            if not process._ready and process._paused_until is None:
                self._runnable.append(process)
            process._ready.push(handle)
        else:
            discard(handle)

    @staticmethod
    def _retire(task: asyncio.Task[Any], process: SimulatedProcess) -> None:
        process._tasks.pop(task, None)
        if task._log_traceback:
            process._failed.append(weakref.ref(task))

    def _stop_when_done(self, _: asyncio.Future[Any]) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Record exceptions that were never retrieved in `errors`, then kill every process."""
        if self._running:
            raise RuntimeError("a running loop cannot be closed")
        if self._closed:
            return
        for process in self._living:
            for task in filter(None, (failed() for failed in process._failed)):
                self._report_failed(task)
        for process in list(self._living):
            process._end()
        self._root._bury()
        self._timers.clear()
        self._closed = True

    def _report_failed(self, task: asyncio.Task[Any]) -> None:
        if task._log_traceback:
            message = "Task exception was never retrieved"
            self.call_exception_handler({"message": message, "exception": task.exception(), "task": task})

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the loop is closed")

    # Scheduling

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("the loop is closed")
        handle = Handle(callback, args, self, context)
        handle.process = self._process_of(context)
        handle.task = task_stepped_by(callback)
        self._make_ready(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Raise RuntimeError in another thread than the loop's."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("a simulated loop has one thread; the timing of others cannot be replayed")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_open()
        timer = Timer(when, callback, args, self, context)
        timer.process = self._process_of(context)
        timer.task = None
        if when <= self._now:
            self._make_ready(timer)
        elif timer.process.alive and self._running_process.alive:
            timer._scheduled = True
            self._timers_created += 1
            heapq.heappush(self._timers, (when, self._random(), self._timers_created, timer))
        return timer

    def _timer_handle_cancelled(self, handle: Timer) -> None:
        """Sweep the heap once most timers are cancelled. TimerHandle.cancel calls this."""
        if not handle._scheduled:
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > 100 and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [e for e in self._timers if e[3] is not handle and not e[3]._cancelled]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        return Future(self.current_process, self._next_future_number(), loop=self)

    def _next_future_number(self) -> int:
        self._futures_created += 1
        return self._futures_created

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Start a task, named by process and number unless `name` is given: the same in every run."""
        self._check_open()
        process = self._process_of(context)
        process._tasks_created += 1
        name = str(name or f"{process.name}-{process._tasks_created}")
        task: asyncio.Task[T]
        if self._task_factory is None:
            options |= {"loop": self, "name": name, "context": context}
            task = Task(process, self._next_future_number(), coro, **options)  # type: ignore[arg-type]
        else:
            if context is not None:
                options["context"] = context
            task = self._task_factory(self, coro, **options)
            task.set_name(name)
        process._tasks[task] = None
        if task.done():
            self._retire(task, process)
        return task

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    def run_in_executor(self, executor: object, func: object, *args: object) -> NoReturn:
        """Raise: the timing of threads cannot be replayed."""
        raise RuntimeError(f"{func!r}: simulated code must not use threads")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""

    # Async generators

    def _adopt_asyncgen(self, agen: AsyncGenerator[Any, Any]) -> None:
        # An entry left under a reused id would make the order depend on addresses.
        self._asyncgens.pop(id(agen), None)
        self._asyncgens[id(agen)] = (weakref.ref(agen), self.current_process)

    def _finalize_asyncgen(self, agen: AsyncGenerator[Any, Any]) -> None:
        _, process = self._asyncgens.pop(id(agen), (None, self._root))
        if process.alive and not self._closed:
            process.spawn(_aclose(agen))

    def _asyncgens_of(self, process: SimulatedProcess) -> list[AsyncGenerator[Any, Any]]:
        refs = [ref for ref, owner in self._asyncgens.values() if owner is process]
        return [agen for agen in (ref() for ref in refs) if agen is not None]

    async def shutdown_asyncgens(self) -> None:
        """Close unfinished async generators of living processes."""
        agens = [agen for process in self._living for agen in self._asyncgens_of(process)]
        self._asyncgens.clear()
        results = await asyncio.gather(*map(_aclose, agens), return_exceptions=True)
        for agen, result in zip(agens, results, strict=True):
            if isinstance(result, BaseException):
                message = f"closing async generator {agen!r} failed"
                self.call_exception_handler({"message": message, "exception": result, "asyncgen": agen})

    # Errors and debugging

    def call_exception_handler(self, context: _ErrorContext) -> None:
        """Record the error and call the exception handler, unless its process is dead."""
        culprit = context.get("task") or context.get("future") or context.get("handle")
        process: SimulatedProcess = getattr(culprit, "process", None) or self.current_process
        if self._closed or not process.alive:
            return
        exception = context.get("exception")
        self.errors.append(UnhandledError(process.name, context["message"], exception, self._now))
        if self._exception_handler is not None:
            self._exception_handler(self, context)

    def default_exception_handler(self, context: _ErrorContext) -> None:
        """Do nothing: the error is in `errors`."""

    def set_exception_handler(self, handler: _ExceptionHandler | None) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> _ExceptionHandler | None:
        return self._exception_handler

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled


async def _aclose(agen: AsyncGenerator[Any, Any]) -> None:
    await agen.aclose()
