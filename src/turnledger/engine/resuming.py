"""Resuming: a retry goes on from the journal of an attempt that failed."""

from __future__ import annotations

from msgspec.structs import replace

from turnledger.engine import closing
from turnledger.engine.ports import Tables
from turnledger.engine.usage import counted_aside
from turnledger.model.attempt import Attempt, AttemptState
from turnledger.model.conversation import Branch
from turnledger.model.ids import TurnId
from turnledger.model.journal import Journal


def can_resume(branch: Branch, earlier: Attempt) -> bool:
    """Whether a retry may take up the journal: only on the head it ran on, or the chain would break; so not
    while the effects of another attempt wait to be settled there first."""
    return (
        earlier.state is AttemptState.FAILED
        and earlier.journaled > 0
        and earlier.base == branch.head
        and branch.unsettled in (None, earlier.id)
    )


async def take_up(
    tables: Tables, branch: Branch, earlier: Attempt, attempt: TurnId
) -> tuple[Branch, Journal, int]:
    """Move the journal of a failed attempt to its retry, and state the calls of unknown outcome. From now
    on the effects are the retry's: nothing waits to be settled."""
    journal = Journal.taken_up(await tables.journal(earlier.id))
    journal.items += closing.resumed(journal)
    await tables.drop_journal(earlier.id)
    resumed = replace(earlier.moved(AttemptState.RESUMED), journaled=0)
    await tables.save_attempt(await counted_aside(tables, resumed))
    await tables.add_records(attempt, 0, journal.records)
    return replace(branch, unsettled=None), journal, len(journal.records)
