"""Output is printable and its JSON equivalent; an output file is complete or unchanged."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.cli.output.file import atomic_writer
from turnledger.cli.output.streams import align_rows, json_of, printable_json
from turnledger.errors import InvalidInput
from turnledger.model.item import Item

HOSTILE = "\x1b[2J \x9b31m \u202e \u2028 \x7f \U000e0041 漢字 é"


def test_json_output_is_printable_and_equal_after_decoding() -> None:
    text = json_of({"said": HOSTILE})
    assert text.isprintable()
    assert "漢字 é" in text
    assert json.loads(text) == {"said": HOSTILE}


@pytest.mark.parametrize(
    "raw", ['{"type":"message",\n\t"role":"user",\r\n"content":"a\\nb\x7f\x9b"}', '{"type" : "x"}']
)
def test_json_output_of_an_item_is_on_one_line(raw: str) -> None:
    text = json_of([Item(raw.encode())])
    assert text.isprintable()
    assert json.loads(text) == [json.loads(raw)]


@repeatable
@given(st.dictionaries(st.text(), st.text()))
def test_printable_json_of_any_value_decodes_to_the_same(value: dict[str, str]) -> None:
    for raw in (json.dumps(value, ensure_ascii=False), json.dumps(value, ensure_ascii=False, indent=1)):
        text = printable_json(raw)
        assert text.isprintable()
        assert json.loads(text) == value


def test_printable_json_leaves_printable_text_unchanged() -> None:
    assert printable_json('{"a":"漢字"}') == '{"a":"漢字"}'


def test_aligned_rows_are_complete_and_in_columns() -> None:
    assert align_rows([("A", "BB"), ("long", "\x1b"), ("", "x")]) == ["A     BB", "long  \\x1b", "      x"]
    assert align_rows([("A", "B"), ("漢字", "x"), ("é", "y")]) == ["A     B", "漢字  x", "é     y"]


def write(output: Path, *pieces: bytes) -> None:
    with atomic_writer(output) as writing:
        for piece in pieces:
            writing(piece)


def test_output_file_is_replaced_when_complete_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "chats"
    file.write_bytes(b"before")
    file.chmod(0o600)
    with atomic_writer(file) as writing:
        writing(b"one")
        assert file.read_bytes() == b"before"
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"one", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_output_file_interrupted_while_written_is_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "chats"
    file.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), atomic_writer(file) as writing:
        writing(b"one")
        raise KeyboardInterrupt
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"before", [file])


def test_output_file_written_twice_at_once_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "chats"
    with atomic_writer(file) as first, atomic_writer(file) as second:
        first(b"first")
        second(b"second")
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]


def test_output_to_a_symlink_writes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    write(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"one"


def test_output_to_a_pipe_is_complete(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reading = Thread(target=lambda: got.append(pipe.read_bytes()))
    reading.start()
    write(pipe, b"one", b"two" * 100_000)
    reading.join(30)
    assert (got, pipe.is_fifo(), list(tmp_path.iterdir())) == ([b"one" + b"two" * 100_000], True, [pipe])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only some systems have a full device")
def test_output_to_a_full_device_is_reported_and_keeps_the_device(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/full")  # a link, so that /dev itself is not written
    with pytest.raises(InvalidInput, match=r"link cannot be written: No space left on device\."):
        write(tmp_path / "link", b"one")
    assert Path("/dev/full").is_char_device()


def test_output_file_reports_only_its_own_errors(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), atomic_writer(tmp_path / "chats"):
        raise ConnectionResetError("the store, or the server")
    with pytest.raises(InvalidInput, match="Is a directory"):
        write(tmp_path, b"one")
    assert list(tmp_path.iterdir()) == []
