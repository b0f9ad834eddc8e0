# Generated from client/aio by `make twins`. Edit that.
"""Messages of a client whose outcome is unknown, blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnledger.client.core.client import ClientCore
from turnledger.client.outbox.outbox import (
    Sent,
    UnsentMessage,
    ends_sending,
    no_outbox_error,
    resend,
    uncertain_error,
)
from turnledger.client.shapes import Answer
from turnledger.client.sync import edge
from turnledger.client.sync.chat import TurnStream
from turnledger.client.sync.wire import Wire
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    from turnledger.client.outbox.file import OutboxFile


class UnsentMessages:
    """Messages that may not have been sent. Any number of threads and programs may share them."""

    def __init__(self, wire: Wire, core: ClientCore, file: OutboxFile | None) -> None:
        self._wire = wire
        self._core = core
        self._open_file = file

    def pending(self) -> list[UnsentMessage]:
        """Return all of them, the oldest first, including those that are being sent."""
        return edge.run_blocking(self._file.pending)

    def send_all(self) -> list[Sent]:
        """Send them again, those of one chat in order, each under its idempotency_key, so that it is carried
        out once; return their outcomes.

        Skips messages that are being sent, and in each chat those after one that stays. A message that the
        server may have forgotten is not sent: its outcome is OutcomeUnknown. Stops at the first that finds no
        server or is not authorized; the others stay.
        """
        sent: list[Sent] = []
        after = 0
        while (unsent := edge.run_blocking(self._file.claim, after)) is not None:
            after = unsent.id
            try:
                sent.append((unsent, self._send(unsent)))
            except TurnledgerError as problem:
                sent.append((unsent, problem))
                if ends_sending(problem):
                    break
        return sent

    def _send(self, unsent: UnsentMessage) -> Answer:
        if unsent.is_uncertain:
            raise uncertain_error(unsent)
        with TurnStream(self._wire, *resend(self._core, unsent)) as stream:
            return stream.answer()

    def forget(self, id: int) -> bool:
        """Remove one, whatever its outcome; return whether it was there."""
        return edge.run_blocking(self._file.forget, id)

    @property
    def _file(self) -> OutboxFile:
        if self._open_file is None:
            raise no_outbox_error()
        return self._open_file
