"""The words of a model's server are bounded, on one line, and free of credentials."""

from __future__ import annotations

import msgspec
import pytest

from turnledger.runners.error_cleaner import HIDDEN, MESSAGE_LENGTH, ErrorCleaner

cleaner = ErrorCleaner(["no-pattern-finds-this", "short"])


def cleaned(words: str) -> str:
    message: str = cleaner.clean(words)["message"]
    return message


WITHOUT_CREDENTIALS = [
    "a short b",
    "This model's maximum context length is 8192 tokens, however you requested 9000 tokens.",
    "max_tokens: 5 is too small",
    "Unexpected token: }",
    "'messages' must contain a user message",
    "No key named `a` in the object",
    "https://docs.example.com/errors#a explains it",
]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("Authorization: Bearer abc.def-ghi", f"Authorization: {HIDDEN}"),
        ("{'x-api-key': 'abcdef', 'a': 1}", f"{{'x-api-key': '{HIDDEN}', 'a': 1}}"),
        ('{"Authorization":"Basic YTpi"}', f'{{"Authorization":"{HIDDEN}"}}'),
        (r"{\"api_key\": \"abc\"}", rf"{{\"api_key\": \"{HIDDEN}\"}}"),
        ("[(b'cookie', b'a=b; c=d')]", f"[(b'cookie', b'{HIDDEN}')]"),
        ("https://ann:pass@host/v1 is down", f"https://{HIDDEN}@host/v1 is down"),
        ("at /v1/x?a=1&key=abc&b=2", f"at /v1/x?a=1&key={HIDDEN}&b=2"),
        ("Wrong API key: abc", f"Wrong API key: {HIDDEN}"),
        ("cookie: a=1; session=unknown; b", f"cookie: {HIDDEN}"),
        ("gsk_abcdefgh1234, pplx-abcdefgh1234, r8_abcdefgh1234", f"{HIDDEN}, {HIDDEN}, {HIDDEN}"),
        ("sk-proj-abcdefgh12345678 or ghp_abcdefgh1234", f"{HIDDEN} or {HIDDEN}"),
        ("bearer abcdefghijk is unknown", f"bearer {HIDDEN} is unknown"),
        ("key sk-ab***yz1234 is wrong", f"key {HIDDEN} is wrong"),
        ("a no-pattern-finds-this b", f"a {HIDDEN} b"),
        *((words, words) for words in WITHOUT_CREDENTIALS),
    ],
)
def test_credentials_are_hidden_and_the_other_words_kept(words: str, left: str) -> None:
    assert cleaned(words) == left


def test_words_are_on_one_line_and_bounded() -> None:
    assert cleaned("a\n\tb\x1b[2J\u202e") == "a b\\x1b[2J\\u202e"
    assert len(cleaned("x" * 100_000)) == MESSAGE_LENGTH


def test_names_that_are_long_or_hold_credentials_are_left_out() -> None:
    error = {"message": "m", "type": "no-pattern-finds-this", "param": "x" * 65, "code": "c"}
    assert cleaner.clean(error) == {"message": "m", "code": "c"}


@pytest.mark.parametrize("payload", [b"{", b"[1]", b'{"error": null, "a": 1}', b'{"a": {"error": 1}}'])
def test_payload_without_an_error_object_stays_as_it_is(payload: bytes) -> None:
    assert cleaner.clean_payloads([payload]) == [payload]


def test_error_object_of_a_payload_is_cleaned_and_its_other_fields_stay() -> None:
    choice = b'{"index": 0, "delta": {"content": "\\ud83d"}}'
    payload = (
        b'{"id": "c", "choices": [%b], "error": {"message": "no-pattern-finds-this", "trace": 1}}' % choice
    )
    [cleaned_payload] = cleaner.clean_payloads([payload])
    assert b"no-pattern" not in cleaned_payload
    assert b'"content": "\\ud83d"' in cleaned_payload
    [denied] = cleaner.clean_payloads([b'{"error": {"message": "org-7", "code": 403}}'])
    assert "permissions" in msgspec.json.decode(denied)["error"]["message"]
    assert b"org-7" not in denied
