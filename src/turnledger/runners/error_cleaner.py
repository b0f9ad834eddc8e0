"""The error object of a model's server: found in a body, its words on one line, bounded, and without
credentials. Servers echo what they were sent, headers included."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from turnledger.errors import TEMPORARY
from turnledger.model.text.plain import plain

MESSAGE_LENGTH = 500
NAME_LENGTH = 64
HIDDEN = "[hidden]"
SHORTEST_SECRET = 6
"""A shorter one could be a word."""
ABOUT_THE_ACCOUNT = frozenset({401, 402, 403, 407})
"""Statuses that concern the operator, not the request."""

_WORDS = ("message", "detail", "msg", "title")
_NAMES = ("type", "param", "code")
_SIZES = ("n_prompt_tokens", "n_ctx")
"""Of a context that is too short, from llama.cpp."""
_ERROR = b'"error"'
"""Within a text the quotes would be escaped."""
_CREDENTIALS = re.compile(
    r"""
    (?P<name>
        (?: (?P<line> authorization | cookie )
          | api[-_\s]?key (?:\s+provided)? | access[-_]token | password | secret
          | (?<=[?&]) (?:key | token | sig | signature) )
        (?: [\\"']* \s*[:=]\s* [\\"']* | ["'] \s*,\s* b?["'] )
    ) (?(line) [^"'\\}\n]+ | [^\s"'\\,;&}]+ )
    | (?P<bearer> \b bearer \s+ ) [\w.~+/=*-]{8,}
    | (?P<address> :// ) [^\s/@]+ (?=@)
    | \b (?: (?:sk|gsk|csk|xai|nvapi|pplx|glpat)[-_] | (?:hf|tlt|r8|fw|tgp|gh[opsu]|github_pat)_
        | AIza | AKIA | eyJ ) [\w.*-]{6,}
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Header lines, fields and parameters that are secret, and keys by their usual beginnings."""


class ErrorCleaner:
    """Cleans the errors of one server; `secrets` are hidden wherever they appear."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._secrets = secrets

    def filter(self) -> SecretFilter:
        """Return a filter for a response that is passed on as it is."""
        return SecretFilter(self._secrets)

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the error object of a response that has nothing else; empty if there are no words in it."""
        try:
            text = body.decode().strip()
            if not text.startswith(("{", "[")):
                return {} if text.startswith("<") else self.clean(text)  # no page of a proxy
            decoded = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        if isinstance(decoded, list) and len(decoded) == 1:
            [decoded] = decoded
        return self.clean(decoded.get("error", decoded) if isinstance(decoded, dict) else None)

    def clean(self, error: Any) -> dict[str, Any]:
        """Return `message`, `type`, `param` and `code` of an error object, or of a text."""
        if not isinstance(error, Mapping):
            error = {"message": error if isinstance(error, str) else None}
        words = next((error[name] for name in _WORDS if error.get(name)), None)
        cleaned: dict[str, Any] = {"message": self._words(words)} if words else {}
        for name in _NAMES:
            value = error.get(name)
            if isinstance(value, int) or (isinstance(value, str) and self._is_name(value)):
                cleaned[name] = value
        cleaned |= {name: error[name] for name in _SIZES if isinstance(error.get(name), int)}
        return cleaned

    def clean_payloads(self, payloads: list[bytes]) -> list[bytes]:
        """Return chunks, or answers, with their error objects cleaned, also those of their choices; the same
        bytes where there are none."""
        # The cheapest search: `in` makes an exception first, and `find` parses its arguments.
        if not b"\n".join(payloads).partition(_ERROR)[1]:
            return payloads
        return [self._clean_payload(each) if _ERROR in each else each for each in payloads]

    def _clean_payload(self, payload: bytes) -> bytes:
        try:
            fields = json.loads(payload)  # also half characters, which msgspec refuses
        except (ValueError, RecursionError):
            return payload
        choices = fields.get("choices") if isinstance(fields, dict) else None
        holders = [fields, *(choices if isinstance(choices, list) else ())]
        failed = [each for each in holders if isinstance(each, dict) and each.get("error") is not None]
        for each in failed:
            each["error"] = self._shown(self.clean(each["error"]))
        return json.dumps(fields).encode() if failed else payload

    def _shown(self, error: dict[str, Any]) -> dict[str, Any]:
        status, words = status_in(error), error.get("message", "")
        if status in ABOUT_THE_ACCOUNT:
            words = problem_of_account(status, words)
        return {**error, "message": words}

    def _words(self, words: Any) -> str:
        text = words if isinstance(words, str) else msgspec.json.encode(words).decode()
        for secret in self._secrets:
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, HIDDEN)
        # Bounded first: the pattern need not read a long text that is cut off anyway.
        text = _CREDENTIALS.sub(_hide, text[: 4 * MESSAGE_LENGTH])
        text = plain(" ".join(text.split()))
        return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"

    def _is_name(self, value: str) -> bool:
        return 0 < len(value) <= NAME_LENGTH and self._words(value) == value


class SecretFilter:
    """Hides secrets in the pieces of a body that may be of any type, also where two pieces share one."""

    __slots__ = ("_held", "_secrets")

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = [each.encode() for each in secrets if len(each) >= SHORTEST_SECRET]
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the next bytes, up to what may be the beginning of a secret."""
        if not self._secrets:
            return piece
        shown = self._held + piece
        for secret in self._secrets:
            shown = shown.replace(secret, HIDDEN.encode())
        held = max((_length_of_begun(secret, shown) for secret in self._secrets), default=0)
        self._held = shown[len(shown) - held :]
        return shown[: len(shown) - held]

    def end(self) -> bytes:
        """Return the last bytes."""
        held, self._held = self._held, b""
        return held


def _length_of_begun(secret: bytes, text: bytes) -> int:
    """Return how many bytes at the end of a text are the beginning of the secret."""
    place = max(0, len(text) - len(secret) + 1)
    while (place := text.find(secret[:1], place)) >= 0:
        if secret.startswith(text[place:]):
            return len(text) - place
        place += 1
    return 0


def _hide(found: re.Match[str]) -> str:
    return (found["name"] or found["bearer"] or found["address"] or "") + HIDDEN


def status_in(error: Mapping[str, Any]) -> int:
    """Return the HTTP status that some servers put into the code of an error object; 0 if there is none."""
    code = str(error.get("code"))
    return int(code) if code.isdigit() and len(code) == 3 else 0


def refuses_repeated_roles(error: Mapping[str, Any]) -> bool:
    """Return whether an error comes from a chat template that takes no two messages of one role in a row, as
    those of Mistral and Gemma."""
    return "roles must alternate" in str(error.get("message"))


def can_heal(status: int) -> bool:
    """Return whether the same request may succeed later, after this status of an upstream."""
    return status in TEMPORARY or not (300 <= status < 500 or status in (501, 505))


def problem_of_account(status: int, words: str) -> str:
    """Return what a status about the operator's account means, and what to do. Words about credentials are
    not for the caller."""
    if status == 401:
        return "The model's server refused the api_key (status 401): check it."
    if status == 402:
        return f"The model's server demands payment (status 402): {words.rstrip('.') or 'check the account'}."
    return f"The model's server denied access (status {status}): check the account's permissions."
