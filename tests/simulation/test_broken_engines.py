"""The simulator catches every deliberately broken engine."""

from __future__ import annotations

import pytest

from tests.long_form import IS_LONG, sample
from tests.simulation.broken import BROKEN, engine_broken_by
from tests.simulation.broken.caught import BEHIND_A_HEAD, CAUGHT
from turnledger.testing.simulation import Violation, simulate

ENOUGH = 3_000
"""Schedules within which a broken engine must be caught; the true one passes all of them."""
SOME = 40 if IS_LONG else 15
"""Schedules in which a second net has to hold."""
EDITING = ("wander",)
"""Clients that edit a lot."""
ON_SQLITE = ("leaves_tickets_behind_when_the_pointer_moves", "removes_turns_that_a_fork_still_needs")
"""Engines without an operation that the rows of each store do in their own way."""
TASTES = {
    "commits_an_edit_without_fence_and_head": EDITING,
    "compares_the_fence_alone": ("fail over",),
    "commits_an_edit_without_the_fence": EDITING,
    "copies_effects_onto_a_running_side_branch": ("parallel",),
    "copies_effects_to_a_parallel_turn_without_sync": ("fail over", "flag", "wander", "parallel", "leave"),
    "copies_effects_with_every_switch": ("wander",),
    "counts_a_closed_ledger_as_a_death": ("work",),
    "decides_to_give_way_before_its_transaction": ("leave",),
    "ends_only_the_shown_turn_of_a_deleted_chat": ("parallel",),
    "enqueues_work_after_any_turn_behind_the_head": ("beside",),
    "expires_beside_a_parallel_turn": ("lapse", "parallel"),
    "forgets_the_queue_behind_a_kept_dead_edit": ("late",),
    "gives_way_while_others_read": ("leave",),
    "goes_on_while_nobody_reads": ("leave",),
    "leaves_effects_of_an_edit_on_its_target_branch": ("wander",),
    "leaves_instructions_of_a_failed_turn_in_force": ("brief",),
    "leaves_out_settled_turns_when_it_undoes": EDITING,
    "lets_a_conversation_lapse_while_a_turn_runs": ("lapse",),
    "records_before_it_stores_what_a_resume_made_void": ("work", "listen", "die"),
    "records_stops_and_delivers_none": ("parallel",),
    "replays_a_lost_answer_without_recording_it": ("say",),
    "replays_a_request_for_another_place": ("wander",),
    "replays_an_answer_that_may_be_delivered": ("say",),
    "resolves_a_doubt_about_work_that_another_process_runs": ("work",),
    "restores_forgotten_effects_when_it_switches": ("forget",),
    "resumes_on_another_head": ("work",),
    "resumes_where_the_retry_would_begin": ("resend", "ask again"),
    "resumes_without_raising_the_fence": ("work",),
    "resumes_without_stating_unknown_outcomes": ("work",),
    "runs_again_what_was_settled_while_work_waited": ("work",),
    "sends_a_retry_to_the_new_conversation_of_the_key": ("clock",),
    "settles_an_edit_with_results_of_its_base": ("wander",),
    "shares_a_running_turn_with_a_connected_client": ("say",),
    "shows_events_of_work_before_they_are_stored": ("work", "listen"),
    "takes_over_without_sync": ("late",),
    "trusts_the_delivery_report_of_an_earlier_try": ("say",),
    "trusts_times_written_in_doubt": ("clock",),
    "writes_back_the_flags_it_read_when_it_began": ("flag",),
}
"""Features that show a mistake, where few schedules have them."""


@pytest.mark.parametrize("name", sample(sorted(BROKEN), 44))
def test_broken_engine_is_caught_by_the_simulator(name: str) -> None:
    with engine_broken_by(name):
        caught = _caught(name)
    assert caught
    # A broken engine that trips over itself proves nothing about the promises.
    assert "a task failed" not in caught[0]


@pytest.mark.parametrize("name", ON_SQLITE)
def test_broken_engine_operation_of_a_store_is_caught_on_sqlite(name: str) -> None:
    with engine_broken_by(name):
        assert _caught(name, "sqlite")


def test_commit_without_the_fence_still_lands_only_on_the_head_it_ran_on() -> None:
    """Without the fence, a commit still lands only on the head it ran on."""
    with engine_broken_by("commits_without_the_fence"):
        broken = [what for seed in range(SOME) for what in violations(seed)]
    assert any("wrote while" in what for what in broken)
    assert not any("chain" in what or "ran on" in what for what in broken)


def test_edit_without_the_fence_still_commits_only_on_the_head_it_began_on() -> None:
    """Without the fence, an edit still commits only while its lane has the head it began on."""
    with engine_broken_by("commits_an_edit_without_fence_and_head"):
        seeds = (BEHIND_A_HEAD, *range(ENOUGH))
        seed = next(
            seed
            for seed in seeds
            if any("behind a head" in what for what in violations(seed, tastes=EDITING))
        )
    with engine_broken_by("commits_an_edit_without_the_fence"):
        broken = [
            *violations(seed, tastes=EDITING),
            *(what for tried in range(SOME) for what in violations(tried)),
        ]
        caught = CAUGHT.get(("memory", "commits_an_edit_without_the_fence"), 0)
        later = (
            what for tried in (caught, *range(SOME, ENOUGH)) for what in violations(tried, tastes=EDITING)
        )
        while not any("wrote while" in what for what in broken):
            broken.append(next(later))
    assert not any("behind a head" in what or "chain" in what or "ran on" in what for what in broken)


def _caught(name: str, store: str = "memory") -> tuple[str, ...]:
    """Return the violations of the first schedule that catches the engine; try the last such one first."""
    seeds = (CAUGHT.get((store, name), 0), *range(ENOUGH))
    tastes = TASTES.get(name, ())
    return next((broken for seed in seeds if (broken := violations(seed, store, tastes))), ())


def violations(seed: int, store: str = "memory", tastes: tuple[str, ...] = ()) -> tuple[str, ...]:
    try:
        simulate(seed, store, tastes)
    except Violation as violation:
        return (violation.what, *violation.others)
    return ()
