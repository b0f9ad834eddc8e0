"""Resume: a retry continues with the journal of a failed attempt."""

from __future__ import annotations

from msgspec.structs import replace

from turnledger.engine.attempt import unfinished_output
from turnledger.engine.limits import count_set_aside
from turnledger.engine.ports import Tables
from turnledger.model.conversation import Branch
from turnledger.model.ids import TurnId
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState


def can_resume(branch: Branch, earlier: Attempt) -> bool:
    """Return whether a retry may resume the journal: only on the head it ran on, and not while effects of
    another attempt must be settled there first."""
    return (
        earlier.state is AttemptState.FAILED
        and earlier.journaled > 0
        and earlier.base == branch.head
        and branch.unsettled in (None, earlier.id)
    )


async def take_up(
    tables: Tables, branch: Branch, earlier: Attempt, attempt: TurnId
) -> tuple[Branch, Journal, int]:
    """Move the journal of a failed attempt to its retry, with a stated result for each call of unknown
    outcome. The effects belong to the retry then, and nothing waits to be settled."""
    journal = Journal.for_retry(await tables.journal(earlier.id))
    journal.items += unfinished_output.resume_results(journal)
    await tables.drop_journal(earlier.id)
    resumed = replace(earlier.with_state(AttemptState.RESUMED), journaled=0)
    await tables.save_attempt(await count_set_aside(tables, resumed))
    await tables.add_records(attempt, 0, journal.records)
    return replace(branch, unsettled=None), journal, len(journal.records)
