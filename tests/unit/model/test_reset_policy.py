"""Expiry and reset policies of a conversation, also on days when clocks change."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.model.shapes import conversation, repeatable
from turnledger.errors import InvalidInput
from turnledger.model import reset_policy
from turnledger.model.conversation import ConversationState
from turnledger.model.reset_policy import NEVER, ResetPolicy, last_daily
from turnledger.model.retention import Lifetime, Lifetimes

PLAIN = conversation(created_at=100, touched_at=200)


@repeatable
@given(st.integers(0, 10**13))
def test_conversation_without_a_time_to_live_never_expires(now: int) -> None:
    assert not PLAIN.is_expired(now)


@pytest.mark.parametrize(("now", "expired"), [(0, False), (249, False), (250, True), (10**13, True)])
def test_conversation_expires_by_the_time_since_its_last_interaction(now: int, expired: bool) -> None:
    assert replace(PLAIN, expires_after=50).is_expired(now) is expired


def test_expired_conversation_stays_expired() -> None:
    assert replace(PLAIN, state=ConversationState.EXPIRED).is_expired(0)
    assert replace(PLAIN, state=ConversationState.EXPIRED, expires_after=10**12).is_expired(0)


def test_conversations_do_not_share_their_metadata() -> None:
    assert PLAIN.metadata is not conversation().metadata


def test_conversation_is_immutable() -> None:
    with pytest.raises(AttributeError):
        PLAIN.title = "Other"  # type: ignore[misc]


DAY = 24 * 60 * 60 * 1000


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_reset_policy_never_is_never_due() -> None:
    assert ResetPolicy.never() == ResetPolicy() == NEVER
    assert not NEVER.is_over(0, 0, 10**15)


@pytest.mark.parametrize(
    ("started", "touched", "now", "over"),
    [(0, 0, 59_999, False), (0, 0, 60_000, True), (0, 1, 60_000, False), (1, 0, 60_000, False)],
)
def test_idle_reset_is_measured_from_start_and_last_interaction(
    started: int, touched: int, now: int, over: bool
) -> None:
    assert ResetPolicy.idle(60).is_over(started, touched, now) is over


def test_reset_is_not_due_after_the_wall_clock_was_set_back() -> None:
    assert not ResetPolicy.idle(60).is_over(0, DAY, 60_000)
    assert not ResetPolicy.daily(0).is_over(0, 2 * DAY + 1, DAY + 1)


@pytest.mark.parametrize(
    ("last", "now", "over"),
    [
        ("2026-05-04T03:59:59Z", "2026-05-04T04:00:00Z", True),
        ("2026-05-04T04:00:00Z", "2026-05-05T03:59:59Z", False),
        ("2026-05-04T03:00:00Z", "2026-05-04T03:59:59Z", False),
        ("2026-05-01T12:00:00Z", "2026-05-04T12:00:00Z", True),
    ],
)
def test_daily_reset_is_due_once_its_hour_has_passed(last: str, now: str, over: bool) -> None:
    policy = ResetPolicy.daily(4)
    assert policy.is_over(0, at(last), at(now)) is over
    assert policy.is_over(at(last), 0, at(now)) is over


@pytest.mark.parametrize(
    ("hour", "zone", "now", "last"),
    [
        (4, "UTC", "2026-01-01T02:00:00Z", "2025-12-31T04:00:00Z"),
        (4, "America/New_York", "2026-01-15T08:00:00Z", "2026-01-14T09:00:00Z"),
        (4, "America/New_York", "2026-07-15T08:00:00Z", "2026-07-15T08:00:00Z"),
        (4, "Asia/Kolkata", "2026-01-15T00:00:00Z", "2026-01-14T22:30:00Z"),
        # 02:00 does not come on this day: the clock jumps to 03:00.
        (2, "Europe/Berlin", "2026-03-29T00:59:59Z", "2026-03-28T01:00:00Z"),
        (2, "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z"),
        # 02:00 comes twice on this day, and counts once.
        (2, "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z"),
        (2, "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z"),
        # This zone skipped the 30th: the first 04:00 after the 29th's is that of the 31st.
        (4, "Pacific/Apia", "2011-12-30T10:10:00Z", "2011-12-29T14:00:00Z"),
        (4, "Pacific/Apia", "2011-12-30T14:00:00Z", "2011-12-30T14:00:00Z"),
    ],
)
def test_daily_reset_hour_follows_its_time_zone_and_clock_changes(
    hour: int, zone: str, now: str, last: str
) -> None:
    assert last_daily(hour, zone, at(now)) == at(last)


def test_reset_with_idle_and_daily_is_due_at_the_earlier() -> None:
    both = ResetPolicy(idle_after=60_000, daily_at=0)
    assert both.is_over(0, DAY + 1, DAY + 60_001)
    assert both.is_over(0, DAY - 1, DAY)
    assert not both.is_over(0, DAY + 1, DAY + 60_000)


def test_idle_reset_below_a_millisecond_is_rounded_up_to_one() -> None:
    assert ResetPolicy.idle(1e-9).idle_after == 1


@pytest.mark.parametrize("seconds", [0, -1, 1e10, float("nan")])
def test_idle_reset_out_of_bounds_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="above 0"):
        ResetPolicy.idle(seconds)


@pytest.mark.parametrize("hour", [-1, 24, 4.5, "4"])
def test_daily_reset_with_an_invalid_hour_is_refused(hour: int) -> None:
    with pytest.raises(InvalidInput, match="0 to 23"):
        ResetPolicy.daily(hour)


@pytest.mark.parametrize("zone", ["Nowhere/City", "Europe", "../../etc/passwd", "/etc/passwd", "", "a\0b"])
def test_daily_reset_with_an_unknown_time_zone_is_refused_with_the_remedy(zone: str) -> None:
    with pytest.raises(InvalidInput, match="tzdata"):
        ResetPolicy.daily(4, zone)


def test_daily_reset_with_an_unknown_stored_time_zone_raises_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="Mars/Base"):
        ResetPolicy(daily_at=4, timezone="Mars/Base").is_over(0, 0, DAY)


def test_daily_reset_in_utc_needs_no_time_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_zones(name: str) -> None:
        raise LookupError(name)

    monkeypatch.setattr(reset_policy, "ZoneInfo", no_zones)
    assert ResetPolicy.daily(0).is_over(0, DAY - 1, DAY)
    with pytest.raises(InvalidInput):
        ResetPolicy.daily(0, "Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("never", NEVER),
        ("idle 1800", ResetPolicy.idle(1800)),
        ("idle 0.25", ResetPolicy.idle(0.25)),
        ("daily 4", ResetPolicy.daily(4)),
        ("daily 23 Europe/Berlin", ResetPolicy.daily(23, "Europe/Berlin")),
        ("idle 60, daily 0", ResetPolicy(idle_after=60_000, daily_at=0)),
    ],
)
def test_reset_policy_is_written_and_read_as_text(text: str, policy: ResetPolicy) -> None:
    assert ResetPolicy.parse(text) == policy
    assert str(policy) == text


def test_parsed_policy_never_is_the_one_that_costs_no_lookup() -> None:
    assert ResetPolicy.parse("never") is NEVER


@pytest.mark.parametrize(
    "text",
    ["", "weekly", "idle", "idle soon", "idle -1", "idle 1e9", "daily", "daily 4 UTC now", "never, idle 5"],
)
def test_unknown_reset_policy_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"Known: never, idle SECONDS, daily HOUR \[TIMEZONE\]"):
        ResetPolicy.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("idle 0", "above 0"), ("daily 24", "0 to 23"), ("daily 4 Mars/Base", "Unknown time zone")],
)
def test_reset_policy_out_of_range_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        ResetPolicy.parse(text)


def test_lifetimes_of_a_scope_replace_those_of_all_chats_one_by_one() -> None:
    daily, idle = ResetPolicy.daily(4), ResetPolicy.idle(60)
    scopes = {"desk": Lifetime(reset=idle), "shop": Lifetime(expires_after=9)}
    lifetimes = Lifetimes(expires_after=60, reset=daily, scopes=scopes)
    found = [(each.expires_after, each.reset) for each in map(lifetimes.of, ("", "desk", "shop", "other"))]
    assert found == [(60, daily), (60, idle), (9, daily), (60, daily)]
