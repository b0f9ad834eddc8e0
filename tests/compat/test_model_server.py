"""A conversation in front of a real model server, which is killed and frozen in the middle of a stream."""

from __future__ import annotations

from pathlib import Path

from tests.compat_real.outages import llama_cpp, tell


def test_conversation_in_front_of_llama_cpp_survives_its_outages(tmp_path: Path) -> None:
    assert tell(llama_cpp(tmp_path), tmp_path, refuses_length=True) == "passes"
