"""Sealed cursors, opaque to the clients that hold them.

A position among the changes or words of a store is a number that counts those of all owners: two of them
would show how active others were in between. So the server seals positions, differently each time, with a
secret that all workers read from the store. It detects a cursor that it did not seal, or that is for another
purpose.
"""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest

from turnledger.tokens import Tokens

LENGTH = 39
"""Characters that are sealed; shorter texts are padded, to hide their length."""
_NONCE = _CHECK = 9
_SEALED = (_NONCE + LENGTH + _CHECK) // 3 * 4


class Seal:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, purpose: bytes, text: str) -> str:
        """Seal an ASCII text without trailing spaces. Never the same twice."""
        nonce = os.urandom(_NONCE)
        masked = self._xor(purpose, nonce, text.encode("ascii").ljust(LENGTH))
        return urlsafe_b64encode(nonce + masked + self._checksum(purpose, nonce + masked)).decode()

    def unseal(self, purpose: bytes, sealed: str) -> str | None:
        """Return the text sealed for this purpose; None for anything else."""
        if len(sealed) != _SEALED or not sealed.isascii():
            return None
        try:
            raw = urlsafe_b64decode(sealed)
        except binascii.Error:
            return None
        if len(raw) != _NONCE + LENGTH + _CHECK:
            return None
        nonce, masked, check = raw[:_NONCE], raw[_NONCE:-_CHECK], raw[-_CHECK:]
        if not compare_digest(check, self._checksum(purpose, nonce + masked)):
            return None
        return self._xor(purpose, nonce, masked).decode("ascii").rstrip()

    def _xor(self, purpose: bytes, nonce: bytes, text: bytes) -> bytes:
        stream = blake2b(nonce, key=self._secret, person=purpose, salt=b"text", digest_size=LENGTH).digest()
        return (int.from_bytes(stream) ^ int.from_bytes(text)).to_bytes(LENGTH)

    def _checksum(self, purpose: bytes, sealed: bytes) -> bytes:
        return blake2b(sealed, key=self._secret, person=purpose, salt=b"check", digest_size=_CHECK).digest()


class ServerSeal:
    """The seal of a server, the same in all workers; read from the store once."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._seal: Seal | None = None

    async def get(self) -> Seal:
        """Read the seal on first use. Raises StoreError."""
        if self._seal is None:
            self._seal = Seal(await self._tokens.store_secret())
        return self._seal
