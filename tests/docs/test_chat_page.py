"""What docs/page.md says of keys and addresses is what the page does."""

from __future__ import annotations

import re

from tests.docs.recipe import ROOT

PAGE = (ROOT / "docs" / "page.md").read_text()
SOURCES = ROOT / "web" / "src"
SHORTCUT = re.compile(r'\{ name: "\w+", keys: \[([^\]]*)\], what: "([^"]+)", where: "(\w+)" \}')
WHERE = {"writing": "in the field", "anywhere": "anywhere", "list": "in the list of chats"}
QUOTE = '"'
ASKED = re.compile(r'\.get\("(\w+)"\)')


def test_every_key_is_told_as_the_page_itself_tells_it() -> None:
    known = SHORTCUT.findall((SOURCES / "composer" / "shortcuts.ts").read_text())
    rows = [f"| {keys.replace(QUOTE, '`')} | {what} | {WHERE[where]} |" for keys, what, where in known]
    assert len(rows) > 8
    assert [row for row in rows if row not in PAGE] == []
    told = PAGE.split("| keys | what they do | where |")[1].split("\n\n")[0].count("\n| `")
    assert told == len(rows)


def test_everything_that_the_address_can_ask_for_is_told() -> None:
    reading = [path.read_text() for path in SOURCES.rglob("*.ts") if "URLSearchParams" in path.read_text()]
    names = {name for text in reading for name in ASKED.findall(text)} & {"embed", "scope", "theme", "keep"}
    assert names == {"embed", "scope", "theme", "keep"}
    assert [name for name in names if f"`/?{name}=" not in PAGE] == []
