"""Share links in the file: nothing that is kept there lets anybody in."""

from __future__ import annotations

from pathlib import Path

from turnledger import Ledger
from turnledger.stores.sqlite import SqliteStore

NONCE = "a-nonce-that-a-page-has-made-up"


async def test_neither_code_nor_nonce_nor_token_is_anywhere_in_the_files(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        share, code = await ledger.shares.create(scope="shop")
        visit = await ledger.shares.exchange(code, NONCE)
        files = [file for file in path.parent.iterdir() if file.is_file()]
        stored = b"".join(file.read_bytes() for file in files)
    assert share.digest in stored
    assert visit.token.digest in stored
    for secret in (code, visit.text, NONCE):
        assert secret[4:20].encode() not in stored
        assert secret[-12:].encode() not in stored
