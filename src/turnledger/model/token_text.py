"""The text of a token: the secret that its bearer shows.

`tlt_`, 33 base62 digits of 192 random bits, and 6 of the CRC-32 of all that stands before. The prefix lets
scanners find one that has leaked; the checksum tells a token from garbage without asking the store.
"""

from __future__ import annotations

import hashlib
from zlib import crc32

from turnledger.model.ids import RandomBits

PREFIX = "tlt_"
SECRET_BITS = 192
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_SECRET_DIGITS, _SUM_DIGITS = 33, 6
_KNOWN_DIGITS = frozenset(DIGITS)


def new_token_text(random_bits: RandomBits) -> str:
    """Make the text of a new token."""
    return secret_text(PREFIX, random_bits(SECRET_BITS))


def is_token_text(text: str) -> bool:
    """Whether this can be the text of a token: anything else was mistyped, cut off, or never was one."""
    return is_secret_text(PREFIX, text)


def secret_text(prefix: str, secret: int) -> str:
    """How a secret of so many bits is written, under a prefix that says what it is."""
    text = prefix + _base62(secret, _SECRET_DIGITS)
    return text + _checksum(text)


def is_secret_text(prefix: str, text: str) -> bool:
    """Whether this can be a secret under the prefix."""
    return (
        len(text) == len(prefix) + _SECRET_DIGITS + _SUM_DIGITS
        and text.startswith(prefix)
        and _KNOWN_DIGITS.issuperset(text[len(prefix) :])
        and text[-_SUM_DIGITS:] == _checksum(text[:-_SUM_DIGITS])
    )


def digest_of(text: str) -> bytes:
    """What a store knows of a token: enough to find it, and not to show it. A slow hash is for passwords,
    which can be guessed."""
    return hashlib.sha256(text.encode()).digest()


def _checksum(text: str) -> str:
    return _base62(crc32(text.encode()), _SUM_DIGITS)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits))
