"""One turn from a pipe: the input is the message, and the answer is written as plain text."""

from __future__ import annotations

import asyncio
from typing import TextIO
from uuid import uuid4

from turnledger.cli.chat.backend import AnswerRestarted, AnyHandle, NewTurn, TurnInProgress, TurnUpdate
from turnledger.cli.chat.interrupts import catch_interrupts
from turnledger.cli.output.sanitize import escape_controls, sanitize
from turnledger.cli.output.streams import print_message
from turnledger.errors import NoNewInput, TurnledgerError, TurnStopped
from turnledger.model.event import ItemDone, RefusalDelta, TextDelta, TurnFinished, TurnResumed
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState


async def run_piped(handle: AnyHandle, model: str, text: str, out: TextIO) -> None:
    """Send the message, and write the answer as it arrives. Raises the error of the turn; TurnStopped after
    Ctrl-C, and BrokenPipeError if the reader is gone: the answer so far is kept."""
    message = text.rstrip("\n")
    if not message.strip():
        raise NoNewInput("Standard input is empty. Pipe a message into the command.")
    running = handle.start(NewTurn(model=model, text=message, idempotency_key=uuid4().hex))
    writer = _AnswerWriter(out)
    with catch_interrupts() as interrupts:
        reading = asyncio.create_task(writer.write(running), name="turnledger answer")
        interrupt = asyncio.create_task(interrupts.wait(), name="turnledger Ctrl-C")
        await asyncio.wait((reading, interrupt), return_when=asyncio.FIRST_COMPLETED)
        is_interrupted = not reading.done()
        interrupt.cancel()
        if is_interrupted:
            await _stop(running, reading)
        await asyncio.wait((reading, interrupt))
    if not reading.cancelled():
        reading.result()
    if is_interrupted or writer.state is not AttemptState.COMPLETED:
        raise TurnStopped


async def _stop(running: TurnInProgress, reading: asyncio.Task[None]) -> None:
    """Stop the turn; if that fails, stop following it."""
    try:
        if running.is_requested:
            await running.stop()
            return
    except TurnledgerError:
        pass
    reading.cancel()


class _AnswerWriter:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        # More than control characters can mislead the reader of a terminal.
        self._clean = sanitize if out.isatty() else escape_controls
        self._half = ""  # half of a line ending
        self._is_at_start = True
        self._streamed: set[type] = set()
        """Kinds of deltas that were written, and whose message has not come yet."""
        self.state: AttemptState | None = None

    async def write(self, running: TurnInProgress) -> None:
        try:
            async for event in running:
                self._write_event(event)
        except BrokenPipeError:
            await running.stop()
            raise
        finally:
            if not self._is_at_start:
                self._write("\n")

    def _write_event(self, event: TurnUpdate) -> None:
        if isinstance(event, TextDelta | RefusalDelta):
            self._streamed.add(type(event))
            self._write(event.text)
        elif isinstance(event, ItemDone):
            item = Item(event.item)
            if item.role == "assistant":
                kind = RefusalDelta if item.is_refusal else TextDelta
                if kind not in self._streamed:
                    self._write(item.text)  # it was not streamed
                self._streamed.discard(kind)
        elif isinstance(event, AnswerRestarted | TurnResumed):
            if self._streamed or isinstance(event, AnswerRestarted):
                print_message("The process of this turn died. The answer begins again on a new line.")
            self._streamed.clear()
            self._write("\n")
        elif isinstance(event, TurnFinished):
            self.state = event.state

    def _write(self, text: str) -> None:
        text, self._half = self._half + text, ""
        if text.endswith("\r"):
            text, self._half = text[:-1], "\r"
        if text:
            self._out.write(self._clean(text))
            self._out.flush()
            self._is_at_start = text.endswith("\n")
