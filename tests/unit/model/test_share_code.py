"""The code of a link, and the token that a visitor gets for it."""

import re
from random import Random

from tests.unit.model.shapes import some_id
from turnledger.model.ids import ShareId
from turnledger.model.share_code import NONCE, is_code, new_code, visitors_token_text
from turnledger.model.token_text import is_token_text, new_token_text

CODE = new_code(Random(1).getrandbits)
SHARE = some_id(ShareId, 1)


def test_its_shape_is_known_and_is_not_that_of_a_token() -> None:
    assert re.fullmatch(r"tls_[0-9A-Za-z]{39}", CODE)
    assert is_code(CODE)
    assert not is_token_text(CODE)
    assert not is_code(new_token_text(Random(1).getrandbits))
    assert not is_code(CODE[:-1])


def test_the_token_depends_on_code_nonce_and_link_and_on_nothing_else() -> None:
    text = visitors_token_text(CODE, "n", SHARE)
    assert is_token_text(text)
    assert visitors_token_text(CODE, "n", SHARE) == text
    others = {
        visitors_token_text(new_code(Random(2).getrandbits), "n", SHARE),
        visitors_token_text(CODE, "m", SHARE),
        visitors_token_text(CODE, "n", some_id(ShareId, 2)),
        visitors_token_text(CODE, "n", None),
    }
    assert len(others | {text}) == 5


def test_a_nonce_is_long_and_plain() -> None:
    assert NONCE.fullmatch("aZ09_-" * 4)
    for other in ("a" * 21, "a" * 129, "a" * 30 + " ", "é" * 30):
        assert not NONCE.fullmatch(other)
