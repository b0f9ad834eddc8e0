"""The code in a share link: the secret that a visitor brings, and the token that is made of it.

`tls_`, then as the text of a token. What a visitor gets is derived from the code and from a nonce that his
page has made up: the same page that asks again is told the same, and the store holds no secret for it.
"""

from __future__ import annotations

import hmac
import re

from turnledger.model.ids import RandomBits, ShareId
from turnledger.model.token_text import PREFIX as TOKEN_PREFIX
from turnledger.model.token_text import SECRET_BITS, is_secret_text, secret_text

PREFIX = "tls_"
NONCE = re.compile(r"[A-Za-z0-9_-]{22,128}")
"""What a page makes up: at least 128 random bits, so that nobody else makes up the same."""


def new_code(random_bits: RandomBits) -> str:
    """Make the code of a new link."""
    return secret_text(PREFIX, random_bits(SECRET_BITS))


def is_code(text: str) -> bool:
    """Whether this can be the code of a link: anything else was mistyped, cut off, or never was one."""
    return is_secret_text(PREFIX, text)


def visitors_token_text(code: str, nonce: str, share: ShareId | None) -> str:
    """The text of the token that a visitor with this nonce gets; of a link that is not there, one that
    nobody has."""
    message = (share.raw if share is not None else bytes(16)) + nonce.encode()
    digest = hmac.digest(code.encode(), message, "sha256")
    return secret_text(TOKEN_PREFIX, int.from_bytes(digest) >> (len(digest) * 8 - SECRET_BITS))
