"""Which models there are: a name that a client asks for, and who answers to it."""

from __future__ import annotations

from typing import Any, NamedTuple

from turnledger.server.errors import Refused


class Found(NamedTuple):
    """Who answers, and what the model is called there."""

    model: Any
    upstream_name: str


class Models:
    """The models of one server, by name."""

    def __init__(self, named: dict[str, Found], otherwise: Any = None) -> None:
        self._named = named
        self._otherwise = otherwise

    def find(self, name: str) -> Found:
        """Who answers to this name; raises Refused (404 `model_not_found`) if nobody does."""
        found = self._named.get(name)
        if found is not None:
            return found
        if self._otherwise is not None:
            return Found(self._otherwise, name)
        known = ", ".join(self._named)
        message = f"There is no model of this name. Known: {known}."
        raise Refused(404, "model_not_found", message, param="model")

    async def close(self) -> None:
        """Close the connections to all upstreams."""
