# Generated from client/aio by `make twins`. Edit that.
"""The blocking edge: runs the steps of the core with httpx2.Client."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from weakref import WeakSet

from turnledger.client.core.exchange import Pacing
from turnledger.client.core.response import ResponseReader, head_of, is_stream
from turnledger.client.core.steps import (
    READ,
    ConnectionFailure,
    Emit,
    Exchange,
    Forget,
    Keep,
    Open,
    Pause,
    Read,
    Record,
    Recorder,
    Reply,
    Request,
    Step,
    Steps,
)
from turnledger.client.errors import closed_error
from turnledger.client.sync import edge
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    import httpx2

    from turnledger.client.core.transport import Address

Result = TypeVar("Result")
Piece = TypeVar("Piece")


class Wire:
    """Connections to one server. Any number of threads may use it at once."""

    def __init__(
        self,
        address: Address,
        pacing: Pacing,
        http: httpx2.Client | None = None,
        record: Recorder | None = None,
    ) -> None:
        """`record` records messages; it may block."""
        self.address = address
        self._sleep = pacing.sleep
        self._record = record
        self._http = http or address.client()
        self._is_own = http is None
        self._closing = edge.Event()
        self._lock = edge.Lock()
        """Held while `_streams` is changed or listed."""
        self._streams: WeakSet[Stream[Any]] = WeakSet()
        self._abandoned = edge.AbandonedResponses()

    def run(self, steps: Steps[Result]) -> Result:
        """Run steps that yield nothing to a reader."""
        outcome: Any = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: Result = end.value
                return result
            outcome = self.run_step(step)

    def run_step(self, step: Step) -> Any:
        """Run one step that needs no stream."""
        match step:
            case Exchange():
                return self._exchange(step.request)
            case Pause():
                return self.pause(step.seconds)
            case Record() | Keep() | Forget():
                return None if self._record is None else edge.run_blocking(self._record, step)
        raise AssertionError(step)

    def open(self, request: Request) -> tuple[Reply, httpx2.Response | None] | ConnectionFailure:
        """Send a request, without reading the body of a successful response."""
        try:
            response = self._send(request)
            if is_stream(response):
                return head_of(response), response
            outcome = _read_whole(response)
            return outcome if isinstance(outcome, ConnectionFailure) else (outcome, None)
        except self.address.problems as problem:
            return self._failure(problem)
        except RuntimeError:
            self._check_open()  # raised by httpx2 if it was closed meanwhile
            raise

    def pause(self, seconds: float, closing: edge.Event | None = None) -> None:
        """Wait, at most until this event. Raises RequestFailed if the client is closed."""
        self._check_open()  # nothing would wake a stream that enrolled after closing
        edge.pause(seconds, closing or self._closing, self._sleep)
        self._check_open()

    def enrol(self, stream: Stream[Any]) -> None:
        """Enrol a stream, to be closed with the client."""
        with self._lock:
            self._streams.add(stream)

    def abandon(self, response: httpx2.Response, home: edge.Home) -> None:
        """Release a response without a reader. Called by the garbage collector, in any thread."""
        self._abandoned.add(response, home)

    def close(self) -> None:
        """Wake all threads that wait or read, and close the connections."""
        self._abandoned.sweep()
        self._closing.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream._fail(closed_error())
        if self._is_own:
            self._http.close()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise closed_error()

    def _exchange(self, request: Request) -> Reply | ConnectionFailure:
        try:
            return _read_whole(self._send(request))
        except self.address.problems as problem:
            return self._failure(problem)
        except RuntimeError:
            self._check_open()  # raised by httpx2 if it was closed meanwhile
            raise

    def _send(self, request: Request) -> httpx2.Response:
        # A redirect leads to another server, which must not receive the request.
        return self._http.send(self._build(request), stream=True, follow_redirects=False)

    def _build(self, request: Request) -> httpx2.Request:
        self._check_open()
        self._abandoned.sweep()
        arguments = self.address.arguments(request)
        if request.pieces is not None:
            arguments["content"] = edge.send_pieces(request.pieces())
        return self._http.build_request(**arguments)

    def _failure(self, problem: Exception) -> ConnectionFailure:
        self._check_open()
        return self.address.failure_of(problem)


class Stream(Generic[Piece]):
    """An iterable response that arrives in pieces. One thread reads at a time; each piece is returned once.
    Leave the block, or close it, to release its connection."""

    _response: httpx2.Response | None = None
    _home: edge.Home | None = None

    def __init__(self, wire: Wire, steps: Steps[None]) -> None:
        self._wire = wire
        self._steps = steps
        self._chunks: Iterator[bytes] = edge.no_chunks()
        self._pieces: deque[Piece] = deque()
        self._step: Step | None = next(steps)
        self._error: BaseException | None = None
        self._closing = edge.Event()
        self._gate = edge.Gate()
        """Held while taking a step or closing."""
        wire.enrol(self)

    def __del__(self) -> None:
        if self._response is not None and self._home is not None:
            self._wire.abandon(self._response, self._home)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        while True:
            while not self._pieces:
                if self._step is None:
                    self._end()
                self._advance_once()
            try:
                return self._pieces.popleft()
            except IndexError:  # another thread has closed it, or taken this piece
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading, from any thread. The turn continues, unless its policy says otherwise."""
        self._closing.set()
        if not self._gate.try_enter():
            edge.hang_up(self._response)  # another thread is inside, and closes it once woken
            return
        try:
            self._step = None
            self._pieces.clear()
            self._steps.close()
            self._release()
        finally:
            self._gate.leave()

    def _fail(self, error: TurnledgerError) -> None:
        """Close it, and raise the error in its reader if it was not at its end."""
        if self._step is not None:
            self._error = error
        self.close()

    def _begin(self) -> Self:
        """Run until there is something to read. Raises what prevents that."""
        while self._step is not None and not isinstance(self._step, Read | Emit):
            self._advance_once()
        if self._error is not None:
            self._end()
        return self

    def _advance_once(self) -> None:
        self._gate.enter()
        try:
            step = self._step
            if isinstance(step, Emit):
                self._pieces.extend(step.items)
                if step.then_read:
                    self._step = READ
                else:
                    self._advance(None)
            elif step is not None:
                outcome = self._run_step(step)
                if not self._closing.is_set():
                    self._advance(outcome)
        except BaseException:
            self._gate.leave()
            self.close()
            raise
        self._gate.leave()
        if self._closing.is_set():
            self.close()  # the closing thread found this one inside

    def _run_step(self, step: Step) -> Any:
        if step is READ:
            return self._read()
        if isinstance(step, Open):
            return self._open(step.request)
        if isinstance(step, Pause):
            return self._wire.pause(step.seconds, self._closing)
        return self._wire.run_step(step)

    def _advance(self, outcome: Any) -> None:
        try:
            self._step = self._steps.send(outcome)
        except StopIteration:
            self._step = None
        except BaseException as problem:
            self._step, self._error = None, problem
        if self._step is None:
            self._release()

    def _end(self) -> None:
        error, self._error = self._error, None
        raise error if error is not None else StopIteration

    def _open(self, request: Request) -> Reply | ConnectionFailure:
        self._release()
        opened = self._wire.open(request)
        if isinstance(opened, ConnectionFailure):
            return opened
        reply, self._response = opened
        if self._response is not None:
            self._home = edge.home()
            is_plain = "content-encoding" not in reply.headers
            self._chunks = self._response.iter_raw() if is_plain else self._response.iter_bytes()
        return reply

    def _read(self) -> bytes | ConnectionFailure:
        try:
            return next(self._chunks, b"")
        except self._wire.address.problems as problem:
            return self._wire.address.failure_of(problem)

    def _release(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            self._chunks = edge.no_chunks()
            response.close()


def _read_whole(response: httpx2.Response) -> Reply | ConnectionFailure:
    """Read a complete response, and release its connection."""
    reader = ResponseReader(response)
    try:
        for piece in response.iter_bytes():
            if not reader.add(piece):
                break
    finally:
        response.close()
    return reader.outcome
