"""A complete response, bounded whatever a server sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnledger.client.core.steps import MAX_BYTES, ConnectionFailure, Reply

if TYPE_CHECKING:
    import httpx2

MAX_ERROR_BYTES = 1024 * 1024
"""Bytes; the rest of a longer error is useless."""


def is_stream(response: httpx2.Response) -> bool:
    return response.status_code == 200


def head_of(response: httpx2.Response) -> Reply:
    return Reply(response.status_code, response.headers)


class ResponseReader:
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._is_successful = response.status_code < 300
        self._room = MAX_BYTES if self._is_successful else MAX_ERROR_BYTES
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> bool:
        self._room -= len(piece)
        self._pieces.append(piece)
        return self._room >= 0

    @property
    def outcome(self) -> Reply | ConnectionFailure:
        if self._room < 0 and self._is_successful:
            return ConnectionFailure("the response is endless", is_hopeless=True)
        return Reply(self._response.status_code, self._response.headers, b"".join(self._pieces))
