"""Tokens in the file: what is kept there of a secret, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from turnledger import Ledger, Rule, TokenScope
from turnledger.errors import StoreCorrupt
from turnledger.stores.sqlite import SqliteStore


async def test_the_text_of_a_token_is_nowhere_in_the_files(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        made, text = await ledger.tokens.create(scopes=list(TokenScope))
        files = [file for file in path.parent.iterdir() if file.is_file()]
        stored = b"".join(file.read_bytes() for file in files)
    assert made.digest in stored
    assert text[4:20].encode() not in stored
    assert text[-12:].encode() not in stored


async def test_scopes_that_are_not_known_let_nobody_in(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        made, _ = await ledger.tokens.create(scopes=list(TokenScope))
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE token SET scopes = 'turns:run everything'")
        connection.close()
        with pytest.raises(StoreCorrupt):
            await ledger.tokens.find(made.digest)
        [finding] = await ledger.check()
    assert finding.rule is Rule.DOCUMENT
    assert finding.message.startswith(f"{made.id} cannot be read: The scopes")
