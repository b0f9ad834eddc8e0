"""The models on offer: from the name in a request to the upstream that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from turnledger.engine.history.context import Context
from turnledger.engine.turn.policies import NO_POLICIES
from turnledger.errors import InvalidInput, ModelError, ModelRefused
from turnledger.model.access.token import PREFIX
from turnledger.model.text.plain import plain
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.context_limit import tokens_of_tools
from turnledger.server.access.auth import Principal
from turnledger.server.access.guard import RequestHead
from turnledger.server.config.settings import DEMO, LENGTH_FIELDS, LengthField, ModelSettings, Settings
from turnledger.server.errors import RequestRefused
from turnledger.server.models.redaction import RedactedModel

MODEL_FIELDS = frozenset({"model", "models", "fallbacks", "fallback_models", "model_list", "extra_body"})
"""Fields in which upstreams accept further models. Compared without case, since some ignore it."""
MOST_VIEWS = 256
"""Views of models for clients, with their credentials, that stay in memory: those used last."""


_WINDOW_FIELDS = frozenset({*LENGTH_FIELDS, "tools"})
"""Fields of a request that leave less of the window to the history."""


class ContextWindow(msgspec.Struct, frozen=True, dict=True):
    """The tokens of a model's context, and those of them that are left for the answer."""

    tokens: int
    answer: int

    @classmethod
    def of(cls, settings: ModelSettings | Settings) -> ContextWindow | None:
        tokens = settings.context_tokens
        return None if tokens is None else cls(tokens, settings.answer_tokens or tokens // 4)

    def budget(self, settings: Mapping[str, Any]) -> Context:
        """Return what fits into it besides the answer and the tools of a request. The answer that a request
        asks for takes at most half: a longer one is rarely used up."""
        if _WINDOW_FIELDS.isdisjoint(settings):
            return self._usual
        requested = max((_tokens(settings[name]) for name in LENGTH_FIELDS if name in settings), default=0)
        answer = min(requested, self.tokens // 2) or self.answer
        return Context.budget(max(0, self.tokens - answer - tokens_of_tools(settings)))

    @cached_property
    def _usual(self) -> Context:
        return Context.budget(max(0, self.tokens - self.answer))


def _tokens(raw: Any) -> int:
    """Return the number in a field of a request, which is not checked; 0 if there is none."""
    value = msgspec.json.decode(msgspec.json.encode(raw))
    return value if isinstance(value, int) else 0


class ResolvedModel(NamedTuple):
    model: ChatModel
    upstream_name: str
    length_field: LengthField | None = None
    window: ContextWindow | None = None
    writes_titles: bool = False
    """Whether it titles the chats that it answers, unless the settings say otherwise. Not the demo model: it
    repeats what it is sent."""


class Models:
    """The models of one server by name, and the upstream for all other names, if there is one."""

    def __init__(
        self,
        by_name: Mapping[str, ResolvedModel],
        fallback: ChatModel | None = None,
        *,
        length_field: LengthField | None = None,
        window: ContextWindow | None = None,
        credential_header: str | None = None,
    ) -> None:
        self._by_name = dict(by_name)
        self._credential_label = credential_header or ""
        self._credential_header = self._credential_label.lower().encode()
        self._fallback = fallback
        self._length_field = length_field
        self._window = window
        self._view = lru_cache(MOST_VIEWS)(self._make_view)
        """Clients send the same credential with each request."""

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def find(self, name: str, principal: Principal) -> ResolvedModel:
        """Return the model of this name. Raises RequestRefused (404 `model_not_found`) if there is none that
        the caller may use."""
        found = self.get(name) if principal.may_use(name) else None
        if found is not None:
            return found
        known = ", ".join(filter(principal.may_use, self._by_name)) or "none for this token"
        message = f"Unknown model {plain(name[:100])!r}. Known: {known}."
        raise RequestRefused(404, "model_not_found", message, param="model")

    def get(self, name: str) -> ResolvedModel | None:
        """Return the model of this name, without checking the caller."""
        found = self._by_name.get(name)
        if found is None and self._fallback is not None:
            return ResolvedModel(self._fallback, name, self._length_field, writes_titles=True)
        return found

    def context(self, name: str, settings: Mapping[str, Any]) -> Context | None:
        """Return what the model of this name is shown by default; None: everything."""
        found = self._by_name.get(name)
        window = found.window if found is not None and found.window is not None else self._window
        return None if window is None else window.budget(settings)

    def for_client(self, model: ChatModel, head: RequestHead) -> ChatModel:
        """Return a model for this request: with the client's own credential for the upstream, if it sends
        one, and without retries, if the client has its own: they would multiply. Raises InvalidInput."""
        sent, has_retries = self._sent_credential(head), head.has_retries
        if not (sent or has_retries):
            return model
        make_view = getattr(model, "for_client", None)
        if make_view is None:
            self._credential_in(sent)  # may raise
            return model
        return self._view(make_view, sent, has_retries)

    def _make_view(self, make_view: Callable[..., ChatModel], sent: bytes, has_retries: bool) -> ChatModel:
        return make_view(retries=not has_retries, api_key=self._credential_in(sent))

    def credential_of(self, head: RequestHead) -> str | None:
        """Return the client's own credential for the upstream, if the settings name a header for it. Raises
        InvalidInput for a token of this server, which no upstream may see."""
        return self._credential_in(self._sent_credential(head))

    def _sent_credential(self, head: RequestHead) -> bytes:
        return head[self._credential_header] if self._credential_header else b""

    def _credential_in(self, sent: bytes) -> str | None:
        scheme, _, rest = sent.strip().partition(b" ")
        credential = (rest if scheme.lower() == b"bearer" else sent).decode("latin-1").strip()
        if credential.startswith(PREFIX):
            label = self._credential_label
            raise InvalidInput(f"{label} has a token of Turnledger. Send the upstream's credential there.")
        return credential or None

    def check_fields(self, names: Iterable[str], principal: Principal) -> None:
        """Raise RequestRefused (403) if a caller with a token for some models names models in a field besides
        `model`."""
        if principal.token is None or not principal.token.models:
            return
        for name in names:
            if name != "model" and name.casefold() in MODEL_FIELDS:
                message = f"{plain(name)}: this token is restricted to some models. Choose one in `model`."
                raise RequestRefused(403, "outside_models", message, param=plain(name))

    async def list_models(self, principal: Principal, head: RequestHead) -> list[dict[str, Any]]:
        """List the models that the caller may use, as objects of the models API. Raises ModelError if the
        upstream cannot be reached."""
        fallback = None if self._fallback is None else self.for_client(self._fallback, head)
        listed = await self._list_all(principal, fallback)
        return [each for each in listed if principal.may_use(str(each.get("id")))]

    async def _list_all(self, principal: Principal, fallback: ChatModel | None) -> list[dict[str, Any]]:
        by_name = [_listed_model(name) for name in self._by_name]
        if fallback is None:
            return by_name
        is_narrowed = principal.token is not None and principal.token.is_narrowed
        try:
            others = await (RedactedModel(fallback) if is_narrowed else fallback).models()
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
    window, header = ContextWindow.of(settings), settings.credential_header
    if not settings.models and settings.upstream is None:
        from turnledger.runners.demo import DemoModel

        demo = ResolvedModel(DemoModel(), DEMO)
        return Models({DEMO: demo}, window=window, credential_header=header)
    connections = _Upstreams(settings, environ)
    by_name = {
        name: ResolvedModel(
            connections.connect(each), each.model or name, each.length_field, ContextWindow.of(each), True
        )
        for name, each in settings.models.items()
    }
    if settings.upstream is None:
        return Models(by_name, window=window, credential_header=header)
    others = ModelSettings(
        upstream=settings.upstream,
        api_key_env=settings.api_key_env,
        finish_reasons=settings.finish_reasons,
        reuse=settings.reuse,
        proxy=settings.proxy,
    )
    return Models(
        by_name,
        connections.connect(others),
        length_field=settings.length_field,
        window=window,
        credential_header=header,
    )


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
        of_name = dict.fromkeys(("model", "length_field", "context_tokens", "answer_tokens"))
        connection = replace(model, timeouts=limits, defaults=NO_POLICIES, **of_name)
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
