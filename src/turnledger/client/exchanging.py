"""One request and its answer, repeated as far as that is safe."""

from __future__ import annotations

from turnledger.client.problems import Told, told_by
from turnledger.client.retrying import Trying
from turnledger.client.wire import Broken, Doing, Exchange, Pause, Reply, Request
from turnledger.errors import ServerUnavailable

_SURELY_NOTHING = frozenset({408, 425, 429, 503})
"""Statuses by which a server says that it did nothing; of others it does not know itself."""


class Exchanging:
    """Asks until there is an answer that counts."""

    def __init__(
        self,
        trying: Trying,
        *,
        is_repeatable: bool = True,
        idempotency_key: str | None = None,
        once: str = "It may have been carried out; look before asking again.",
    ) -> None:
        """`once` is what to tell of a request that cannot be repeated, and may have been carried out."""
        self._trying = trying
        self._is_repeatable = is_repeatable
        self._idempotency_key = idempotency_key
        self._once = once
        self.may_be_done = False
        """Whether an earlier try may have been carried out, its answer lost."""
        self.refusal: Reply | None = None
        """The last answer that was not the one asked for."""

    def ask(self, request: Request) -> Doing[Reply]:
        """Return the good answer. Raises what the server says, or ServerUnavailable."""
        while True:
            outcome: Reply | Broken = yield Exchange(request)
            if isinstance(outcome, Reply) and outcome.status < 300:
                return outcome
            trouble = outcome if isinstance(outcome, Broken) else self._refused(outcome)
            if not self._may_repeat(outcome):
                raise self._given_up(trouble)
            retry_after = None if isinstance(trouble, Broken) else trouble.retry_after
            seconds = self._trying.pause(retry_after)
            if seconds is None:
                raise self._given_up(trouble)
            self.may_be_done |= self._may_be_done_by(outcome)
            yield Pause(seconds)

    def _refused(self, reply: Reply) -> Told:
        self.refusal = reply
        told = told_by(reply)
        if not told.is_passing:
            raise told.error
        return told

    def _may_repeat(self, outcome: Reply | Broken) -> bool:
        if isinstance(outcome, Broken) and outcome.is_hopeless:
            return False
        return self._is_repeatable or not self._may_be_done_by(outcome)

    @staticmethod
    def _may_be_done_by(outcome: Reply | Broken) -> bool:
        if isinstance(outcome, Broken):
            return outcome.may_have_arrived
        return outcome.status not in _SURELY_NOTHING

    def _given_up(self, trouble: Told | Broken) -> Exception:
        if not isinstance(trouble, Broken):
            return trouble.error
        tries = f", after {self._trying.failed} tries" if self._trying.failed > 1 else ""
        message = f"No whole answer came from the server{tries}: {trouble.reason}."
        if not trouble.may_have_arrived and not self.may_be_done:
            message += " The request never reached it. Check that it runs there."
        elif not self._is_repeatable:
            message += f" {self._once}"
        return ServerUnavailable(message, idempotency_key=self._idempotency_key)
