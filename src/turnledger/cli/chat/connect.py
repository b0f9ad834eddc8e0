"""From options and the environment to the server or store that holds the chats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from turnledger.cli.backend.backend import API_KEY, SERVER
from turnledger.cli.chat.backend import ChatBackend
from turnledger.engine.limits import Limits
from turnledger.errors import InvalidInput
from turnledger.runners.chat_model import ChatModel
from turnledger.stores.url import described

if TYPE_CHECKING:
    from turnledger.cli.chat.store import ModelRegistry
    from turnledger.server.config.settings import Settings


class Options(Struct, frozen=True, kw_only=True):
    server: str | None = None
    store: str | None = None
    config: Path | None = None
    upstream: str | None = None
    api_key_env: str | None = None
    scope: str | None = None


async def connect(options: Options, environ: Mapping[str, str]) -> ChatBackend:
    """Connect. Raises InvalidInput for contradicting options, and errors of opening the store."""
    store_options = {
        "--store": options.store,
        "--config": options.config,
        "--upstream": options.upstream,
        "--api-key-env": options.api_key_env,
    }
    used = [name for name, value in store_options.items() if value is not None]
    if options.server is not None and used:
        raise InvalidInput(f"--server and {used[0]} exclude each other. Use one of them.")
    server = options.server or (None if used else environ.get(SERVER))
    if server:
        return _open_server(server, options, environ)
    return await _open_store(options, environ)


def _open_server(url: str, options: Options, environ: Mapping[str, str]) -> ChatBackend:
    from turnledger.cli.chat.server import open_server

    try:
        return open_server(url, environ.get(API_KEY) or None, options.scope)
    except InvalidInput as problem:
        raise InvalidInput(f"--server or {SERVER}, or the token in {API_KEY}: {problem}") from None


async def _open_store(options: Options, environ: Mapping[str, str]) -> ChatBackend:
    from turnledger.cli.chat.store import StoreChatBackend, TitleWriter
    from turnledger.ledger import Ledger

    settings = _settings(options, environ)
    _check_storage(settings, options)
    limits = Limits(
        owner_bytes=settings.limits.owner_bytes,
        owner_chats=settings.limits.owner_chats,
        input_items=settings.limits.input_items,
        turn_bytes=settings.limits.turn_bytes,
        **settings.chats.limits,
    )
    models, title_model = _models(settings, environ), settings.chats.title_model
    ledger = await Ledger.open(settings.store, limits=limits)
    titling_model = models.get(title_model) if title_model else None
    return StoreChatBackend(
        ledger,
        models,
        _short_path(settings.store),
        scope=options.scope,
        title_writer=TitleWriter(ledger, titling_model) if titling_model is not None else None,
        is_demo=isinstance(models, DemoModels),
    )


def _short_path(url: str) -> str:
    """Return the store's path, with `~` for the home folder."""
    path = described(url).removeprefix("sqlite:///")
    home = f"{Path.home()}/"
    return f"~/{path.removeprefix(home)}" if path.startswith(home) else path


def _models(settings: Settings, environ: Mapping[str, str]) -> ModelRegistry:
    if not settings.models and settings.upstream is None:
        return DemoModels()  # it needs none of the server's packages
    from turnledger.server.models.models import make_models

    return make_models(settings, environ)


def _check_storage(settings: Settings, options: Options) -> None:
    """Refuse to chat where the operator's settings keep no chats: a terminal keeps everything."""
    scope = settings.chats.scopes.get(options.scope or "")
    keeps = settings.chats.keep if scope is None or scope.keep is None else scope.keep
    if not keeps and options.store is None:
        raise InvalidInput("turnledger.toml disables storing chats. Choose a store with --store.")


def _settings(options: Options, environ: Mapping[str, str]) -> Settings:
    from turnledger.server.config.file import load_settings

    return load_settings(
        {"store": options.store, "upstream": options.upstream, "api_key_env": options.api_key_env},
        config=options.config,
        environ=environ,
    )


def history_folder(environ: Mapping[str, str]) -> Path:
    from turnledger.server.config.folders import data_folder

    return data_folder(environ, Path.home())


class _Demo(NamedTuple):
    model: ChatModel
    upstream_name: str


class DemoModels:
    NAME = "demo"

    def __init__(self) -> None:
        from turnledger.runners.demo import DemoModel

        self._model = DemoModel()

    @property
    def names(self) -> list[str]:
        return [self.NAME]

    def get(self, name: str) -> _Demo | None:
        return _Demo(self._model, name) if name == self.NAME else None

    async def close(self) -> None:
        await self._model.close()
