"""The models that answer on a store: those that a server with the same settings would have."""

from __future__ import annotations

from typing import Protocol

from turnledger.errors import InvalidInput, ModelError
from turnledger.model.text.plain import plain
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner


class NamedModel(Protocol):
    """Who answers to a name, and what the model is called there."""

    @property
    def model(self) -> ChatModel: ...
    @property
    def upstream_name(self) -> str: ...


class KnownModels(Protocol):
    """Models by name, as server.models has them."""

    @property
    def names(self) -> list[str]: ...
    def named(self, name: str) -> NamedModel | None: ...
    async def close(self) -> None: ...


class StoreModels:
    """Finds who answers. Where an upstream has models that nobody named, it is asked for their names."""

    def __init__(self, known: KnownModels) -> None:
        self._known = known

    async def names(self) -> list[str]:
        """The names of all models. Raises a ModelError if none is known, and an upstream tells none."""
        names = self._known.names
        other = self._known.named("")
        if other is not None:
            try:
                names += [str(each.get("id")) for each in await other.model.models()]
            except ModelError:
                if not names:
                    raise
        if not names:
            raise ModelError("The upstream names no models. Name one with --model.")
        return list(dict.fromkeys(names))

    def runner(self, name: str) -> ChatRunner:
        """What runs one turn with this model. Raises InvalidInput for one that is not there."""
        found = self._known.named(name)
        if found is None:
            known = ", ".join(self._known.names)
            raise InvalidInput(plain(f"There is no model {name!r}. Known: {known}."))
        return ChatRunner(found.model, {"model": found.upstream_name})

    async def close(self) -> None:
        await self._known.close()
