"""The language linter finds the listed habits in readable text and enforces a falling limit for each."""

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


def test_language_linter_finds_habits_in_comments_texts_and_pages_but_not_in_code(place: Path) -> None:
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


def test_language_linter_fails_above_the_allowed_count_and_reports_a_lower_one(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "README.md").write_text(PAGE)
    monkeypatch.setattr(language, "ALLOWED", {"told": 0, "by now": 1})
    assert language.main() == 1
    printed = capsys.readouterr().out
    assert "README.md:1: Nobody is told." in printed
    assert "by now: 0 are left" in printed
