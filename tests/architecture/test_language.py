"""The linter for language finds the habits that it knows, where people read, and counts them down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import language

MODULE = '''"""Who is let in is told so."""

said = "not by now"  # he knows
code = lambda he: he
'''
PAGE = """Nobody is told.

```
who is told
```
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(language, "ROOT", tmp_path)
    monkeypatch.setattr(language, "messages", lambda: ())
    (tmp_path / "src").mkdir()
    return tmp_path


def test_habits_are_found_in_comments_texts_and_pages_but_not_in_code(place: Path) -> None:
    (place / "src" / "module.py").write_text(MODULE)
    (place / "README.md").write_text(PAGE)
    assert [(hit.habit, hit.place) for hit in language.hits()] == [
        ("headless clause", "src/module.py:1"),
        ("told", "src/module.py:1"),
        ("let in, shut out", "src/module.py:1"),
        ("by now", "src/module.py:3"),
        ("he for a user", "src/module.py:3"),
        ("told", "README.md:1"),
    ]


def test_more_of_a_habit_than_allowed_fails_and_less_is_reported(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "README.md").write_text(PAGE)
    monkeypatch.setattr(language, "ALLOWED", {"told": 0, "by now": 1})
    assert language.main() == 1
    printed = capsys.readouterr().out
    assert "README.md:1: Nobody is told." in printed
    assert "by now: 0 are left" in printed
