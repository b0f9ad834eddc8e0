"""The doctor looks at everything, whatever is wrong with a part of it."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.processes import started
from turnledger.server import doctor
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.doctor import (
    Diagnosis,
    Doctor,
    Level,
    check_clock,
    check_exposure,
    check_open_files,
    check_port,
    examine,
)

NOW = 1_800_000_000.0


def levels(found: list[Diagnosis]) -> dict[str, Level]:
    return {each.subject: each.level for each in found}


async def test_everything_is_looked_at(tmp_path: Path) -> None:
    settings = Settings(port=0, store=f"sqlite:///{tmp_path}/chats.db")
    found = levels(await examine(lambda: settings, {}))
    wanted = {"versions", "SQLite", "settings", "store", "disk", "models", "access", "clock"}
    assert wanted <= found.keys()
    assert Level.FAIL not in found.values()


async def test_settings_that_are_wrong_are_told_and_all_else_hangs_on_them() -> None:
    def load() -> Settings:
        raise InvalidSettings("/etc/turnledger.toml, line 3: `prot` is not a setting.")

    found = await examine(load, {})
    assert levels(found) == {"versions": Level.OK, "SQLite": Level.OK, "settings": Level.FAIL}
    assert "line 3" in found[-1].told


async def test_a_check_that_breaks_keeps_none_of_the_others_from_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("with a secret")

    monkeypatch.setattr(doctor, "check_store", broken)
    found = await Doctor(Settings(port=0), {}).findings()
    assert levels(found)["store"] is Level.FAIL
    assert {"models", "access", "clock"} <= levels(found).keys()
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("settings", "any_tokens", "level", "told"),
    [
        (Settings(), False, Level.OK, "this machine only"),
        (Settings(insecure=True), False, Level.WARN, "behind a proxy"),
        (Settings(host="0.0.0.0", insecure=True), False, Level.WARN, "without a token"),
        (Settings(host="0.0.0.0"), False, Level.FAIL, "there is no token"),
        (Settings(host="0.0.0.0"), True, Level.OK, "with a token only"),
        (Settings(host="0.0.0.0", insecure=True), True, Level.OK, "with a token only"),
        (Settings(), True, Level.OK, "with a token only"),
    ],
)
def test_who_is_let_in(settings: Settings, any_tokens: bool, level: Level, told: str) -> None:
    [found] = check_exposure(settings, any_tokens=any_tokens)
    assert (found.level, told in found.told) == (level, True)


def test_fewer_files_than_requests_need_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_open_files(Settings(limits=ServerLimits(requests=1))) == []
    # Each may have a connection upstream as well.
    monkeypatch.setattr(doctor, "allowed_files", lambda _: Settings().limits.requests + 1000)
    assert levels(check_open_files(Settings())) == {"open files": Level.WARN}


def test_an_address_of_another_machine_is_not_taken_for_a_port_in_use() -> None:
    [found] = check_port(Settings(host="192.0.2.1"))  # for documentation only: nobody has it
    assert (found.level, "no address of this machine" in found.told) == (Level.FAIL, True)


def test_a_port_that_is_free_one_of_ours_and_one_of_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_port(Settings(port=0)) == []
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        settings = Settings(port=other.getsockname()[1])
        other.listen()
        monkeypatch.setattr(doctor, "HEARING", 0.05)
        assert levels(check_port(settings)) == {"port": Level.FAIL}
        monkeypatch.undo()
    assert "free" in check_port(settings)[0].told
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        [found] = check_port(Settings(port=server.address[1]))
        assert (found.level, "is ready" in found.told) == (Level.OK, True)


@pytest.mark.parametrize(
    ("now", "ahead", "newest", "level", "told"),
    [
        (NOW, [], None, Level.OK, "nothing speaks against"),
        (NOW, [3.0], None, Level.OK, "as that of the upstream"),
        (NOW, [300.0], None, Level.WARN, "300 seconds behind"),
        (NOW, [-300.0], None, Level.WARN, "300 seconds ahead"),
        (NOW, [300.0, 1.0], None, Level.OK, "as that"),
        (NOW, [], NOW - 5, Level.OK, "nothing"),
        (NOW, [], NOW + 300, Level.WARN, "in the future"),
        (5.0, [], None, Level.FAIL, "never set"),
    ],
)
def test_the_clock_is_held_against_others(
    now: float, ahead: list[float], newest: float | None, level: Level, told: str
) -> None:
    [found] = check_clock(now, ahead, None if newest is None else int(newest * 1000))
    assert (found.level, told in found.told) == (level, True)
