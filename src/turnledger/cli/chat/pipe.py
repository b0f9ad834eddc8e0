"""One turn from a pipe: the input is the message, and the answer is written as plain text."""

from __future__ import annotations

import asyncio
from typing import TextIO
from uuid import uuid4

from turnledger.cli.chat.backend import NewTurn, Restarted, Talk, TurnInProgress, TurnUpdate
from turnledger.cli.chat.interrupts import noted_presses
from turnledger.cli.chat.sanitize import harmless, uncontrolled
from turnledger.errors import NoNewInput, TurnledgerError, TurnStopped
from turnledger.model.event import ItemDone, TextDelta, TurnFinished
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState


async def run_piped(talk: Talk, model: str, text: str, out: TextIO) -> None:
    """Send the message, and write the answer as it arrives. Raises the error of the turn; TurnStopped after
    Ctrl-C, and BrokenPipeError if the reader is gone: the answer so far is kept."""
    message = text.rstrip("\n")
    if not message.strip():
        raise NoNewInput("Standard input is empty. Pipe a message into the command.")
    answering = talk.ask(NewTurn(model=model, text=message, idempotency_key=uuid4().hex))
    writing = _Writing(out)
    with noted_presses() as interrupts:
        hearing = asyncio.create_task(writing.write(answering), name="turnledger answer")
        pressing = asyncio.create_task(interrupts.next(), name="turnledger Ctrl-C")
        await asyncio.wait((hearing, pressing), return_when=asyncio.FIRST_COMPLETED)
        is_pressed = not hearing.done()
        pressing.cancel()
        if is_pressed:
            await _stop(answering, hearing)
        await asyncio.wait((hearing, pressing))
    if not hearing.cancelled():
        hearing.result()
    if is_pressed or writing.state is not AttemptState.COMPLETED:
        raise TurnStopped


async def _stop(answering: TurnInProgress, hearing: asyncio.Task[None]) -> None:
    """Stop the turn; if that fails, stop following it."""
    try:
        if answering.is_asked:
            await answering.stop()
            return
    except TurnledgerError:
        pass
    hearing.cancel()


class _Writing:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        # More than control characters can mislead the reader of a terminal.
        self._cleaned = harmless if out.isatty() else uncontrolled
        self._half = ""  # half of a line ending
        self._is_at_start = True
        self._has_told = False
        self.state: AttemptState | None = None

    async def write(self, answering: TurnInProgress) -> None:
        try:
            async for event in answering:
                self._take(event)
        except BrokenPipeError:
            await answering.stop()
            raise
        finally:
            if not self._is_at_start:
                self._write("\n")

    def _take(self, event: TurnUpdate) -> None:
        if isinstance(event, TextDelta):
            self._has_told = True
            self._write(event.text)
        elif isinstance(event, ItemDone):
            item = Item(event.item)
            if item.role == "assistant" and not self._has_told:
                self._write(item.text)  # it was not streamed
            self._has_told = False
        elif isinstance(event, Restarted):
            self._write("\n")
        elif isinstance(event, TurnFinished):
            self.state = event.state

    def _write(self, text: str) -> None:
        text, self._half = self._half + text, ""
        if text.endswith("\r"):
            text, self._half = text[:-1], "\r"
        if text:
            self._out.write(self._cleaned(text))
            self._out.flush()
            self._is_at_start = text.endswith("\n")
