"""The models on offer: from the name in a request to the upstream that answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from turnledger.errors import ModelError, ModelRefused
from turnledger.model.text.plain import plain
from turnledger.runners.chat_model import ChatModel
from turnledger.server.access.auth import Principal
from turnledger.server.config.settings import DEMO, LengthField, ModelSettings, Settings
from turnledger.server.errors import RequestRefused
from turnledger.server.models.redaction import RedactedModel

MODEL_FIELDS = frozenset({"model", "models", "fallbacks", "fallback_models", "model_list", "extra_body"})
"""Fields in which upstreams accept further models. Compared without case, since some ignore it."""


class ResolvedModel(NamedTuple):
    model: ChatModel
    upstream_name: str
    length_field: LengthField | None = None


class Models:
    """The models of one server by name, and the upstream for all other names, if there is one."""

    def __init__(
        self,
        by_name: Mapping[str, ResolvedModel],
        fallback: ChatModel | None = None,
        *,
        length_field: LengthField | None = None,
    ) -> None:
        self._by_name = dict(by_name)
        self._fallback = fallback
        self._length_field = length_field

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def find(self, name: str, principal: Principal) -> ResolvedModel:
        """Return the model of this name. Raises RequestRefused (404 `model_not_found`) if there is none that
        the caller may use."""
        found = self.get(name) if principal.may_use(name) else None
        if found is not None:
            return found
        known = ", ".join(filter(principal.may_use, self._by_name))
        message = f"Unknown model {plain(name[:100])!r}. Known: {known}."
        raise RequestRefused(404, "model_not_found", message, param="model")

    def get(self, name: str) -> ResolvedModel | None:
        """Return the model of this name, without checking the caller."""
        found = self._by_name.get(name)
        if found is None and self._fallback is not None:
            return ResolvedModel(self._fallback, name, self._length_field)
        return found

    def check_fields(self, names: Iterable[str], principal: Principal) -> None:
        """Raise RequestRefused (403) if a caller with a token for some models names models in a field besides
        `model`."""
        if principal.token is None or not principal.token.models:
            return
        for name in names:
            if name != "model" and name.casefold() in MODEL_FIELDS:
                message = f"{plain(name)}: this token is restricted to some models. Choose one in `model`."
                raise RequestRefused(403, "outside_models", message, param=plain(name))

    async def list_models(self, principal: Principal) -> list[dict[str, Any]]:
        """List the models that the caller may use, as objects of the models API. Raises ModelError if the
        upstream cannot be reached."""
        return [each for each in await self._list_all(principal) if principal.may_use(str(each.get("id")))]

    async def _list_all(self, principal: Principal) -> list[dict[str, Any]]:
        by_name = [_listed_model(name) for name in self._by_name]
        if self._fallback is None:
            return by_name
        is_narrowed = principal.token is not None and principal.token.is_narrowed
        try:
            others = await (RedactedModel(self._fallback) if is_narrowed else self._fallback).models()
        except ModelRefused as refused:
            if refused.status == 429:
                raise
            # The refusal concerns the upstream's list, not this request.
            raise ModelError(f"The upstream does not list its models. {refused}") from None
        if is_narrowed:
            # Owner and permissions of a model may name the operator's organisation.
            others = [_listed_model(str(each.get("id"))) for each in others]
        return by_name + [each for each in others if each.get("id") not in self._by_name]

    async def close(self) -> None:
        models = [found.model for found in self._by_name.values()]
        if self._fallback is not None:
            models.append(self._fallback)
        for model in {id(each): each for each in models}.values():
            await model.close()


def _listed_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "turnledger"}


def make_models(settings: Settings, environ: Mapping[str, str]) -> Models:
    """Make the models in the settings; the demo model if there are none."""
    if not settings.models and settings.upstream is None:
        from turnledger.runners.demo import DemoModel

        return Models({DEMO: ResolvedModel(DemoModel(), DEMO)})
    connections = _Upstreams(settings, environ)
    by_name = {
        name: ResolvedModel(connections.connect(each), each.model or name, each.length_field)
        for name, each in settings.models.items()
    }
    if settings.upstream is None:
        return Models(by_name)
    others = ModelSettings(
        upstream=settings.upstream,
        api_key_env=settings.api_key_env,
        finish_reasons=settings.finish_reasons,
        reuse=settings.reuse,
        proxy=settings.proxy,
    )
    return Models(by_name, connections.connect(others), length_field=settings.length_field)


class _Upstreams:
    """Models with equal connection settings share their connections."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._connections: dict[ModelSettings, ChatModel] = {}

    def connect(self, model: ModelSettings) -> ChatModel:
        # Imported only for an upstream: the demo model needs none of it.
        from turnledger.runners.upstream.upstream import Timeouts, Upstream

        limits = model.timeouts or self._settings.timeouts
        connection = replace(model, model=None, timeouts=limits, length_field=None)
        if connection not in self._connections:
            self._connections[connection] = Upstream(
                model.upstream,
                self._environ.get(model.api_key_env) if model.api_key_env else None,
                timeouts=Timeouts(
                    connect=limits.connect,
                    first_byte=limits.first_byte,
                    between_chunks=limits.between_chunks,
                    total=limits.total,
                ),
                finish_reasons=model.finish_reasons,
                reuse=model.reuse,
                proxy=model.proxy,
            )
        return self._connections[connection]
