"""The policies of a turn that its request may choose; a token, a model or a server has defaults for them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.resent_request import OnDivergence
from turnledger.errors import InvalidInput
from turnledger.model.turn import OnBusy, OnFailure, OnStop


class OnDisconnect(StrEnum):
    """What to do with a turn whose client disconnects."""

    YIELD = "yield"  # it continues until another request wants its lane while nobody reads it: then keep it
    CONTINUE = "continue"  # it continues, and can be read later
    KEEP = "keep"  # stop it, and keep it as an interrupted turn
    DISCARD = "discard"  # stop and discard it


class Policies(Struct, frozen=True, kw_only=True):
    """None where nothing is chosen."""

    on_busy: OnBusy | None = None
    on_stop: OnStop | None = None
    on_failure: OnFailure | None = None
    on_divergence: OnDivergence | None = None
    on_disconnect: OnDisconnect | None = None
    messages: SentMessages | None = None

    def over(self, defaults: Policies) -> Policies:
        """Return these policies, and the defaults where nothing is chosen."""
        names = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return replace(defaults, **{name: getattr(self, name) for name in names})


NO_POLICIES = Policies()
KINDS: Mapping[str, type[StrEnum]] = {
    "on_busy": OnBusy,
    "on_stop": OnStop,
    "on_failure": OnFailure,
    "on_divergence": OnDivergence,
    "on_disconnect": OnDisconnect,
    "messages": SentMessages,
}


def parse_policies(values: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Policies:
    """Return the policies of these names. Raises InvalidInput for an unknown name or value; `labels` are the
    names that the error uses."""
    chosen = {}
    for name, value in values.items():
        if name not in KINDS:
            raise InvalidInput(f"{name[:40]!r} is not a policy. Known: {', '.join(KINDS)}.")
        try:
            chosen[name] = KINDS[name](value)
        except ValueError:
            known, label = ", ".join(KINDS[name]), (labels or {}).get(name, name)
            raise InvalidInput(f"{label} is {value[:40]!r}; it must be one of {known}.") from None
    return Policies(**chosen) if chosen else NO_POLICIES  # type: ignore[arg-type]
