"""A claimant is alive for as long as its process is, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from turnledger.client.outbox.outbox import Claimant


def test_those_of_this_process_are_alive() -> None:
    one, other = Claimant(), Claimant()
    assert one.name != other.name
    assert one.is_alive(other.name)
    assert one.is_alive(one.name)


def test_one_that_has_retired_is_not() -> None:
    one, other = Claimant(), Claimant()
    other.retire()
    assert not one.is_alive(other.name)


def test_one_of_an_earlier_process_of_the_same_number_is_not() -> None:
    assert not Claimant().is_alive(f"{os.getpid()}:of-another-life")


@pytest.mark.skipif(os.name != "posix", reason="it cannot be asked there")
def test_a_process_that_has_ended_is_dead() -> None:
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = f"{program.pid}:whoever"
    assert Claimant().is_alive(name)
    program.communicate()
    assert not Claimant().is_alive(name)


def test_what_is_no_name_is_given_the_benefit_of_the_doubt() -> None:
    assert Claimant().is_alive("whoever")
