"""Settings from flags and a TOML file. Errors name the file, the line and the remedy."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from turnledger.engine.turn.policies import Policies
from turnledger.errors import InvalidInput, NotAStore
from turnledger.model.reset_policy import policy_of
from turnledger.model.text.plain import plain
from turnledger.server.config import folders
from turnledger.server.config.settings import (
    BASE_URL,
    DEMO,
    NAMING_FIELDS,
    ChatSettings,
    ModelSettings,
    ModelTimeouts,
    ScopeSettings,
    ServerLimits,
    Settings,
    is_free_header,
    is_host_name,
    is_name_source,
    is_origin,
    split_skip_rule,
)
from turnledger.stores.url import SCHEMES, names_store

FILE_NAME = "turnledger.toml"
STORE_NAME = "chats.db"

Table = TypeVar("Table", bound=msgspec.Struct)
TABLES = ("server", "chats", "models")
OWN_TABLES = frozenset({"models", "chats"})
"""Settings of the server that are tables of their own in the file."""
FLAGS = {"hosts": "--allow-host", "origins": "--origin"}
"""The flags that are not named like their setting, since each value has a flag of its own."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
SettingPath = tuple[str, ...]
"""The path to a setting in the file: `("server", "port")`."""


class InvalidSettings(InvalidInput):
    """The server cannot start with these settings. Correct them."""

    code = "invalid_settings"


def load_settings(
    flags: Mapping[str, Any],
    *,
    config: Path | None,
    environ: Mapping[str, str],
    config_folder: Path | None = None,
    data_folder: Path | None = None,
) -> Settings:
    """Load the settings from flags (those that are not None) and the file: `config`, or the user's own if it
    exists. A flag overrides the file. If neither names a store, it is a file in the data folder, which is
    created. Raises InvalidSettings."""
    file = _settings_file(config, config_folder or folders.config_folder(environ, Path.home()))
    set_flags = {name: value for name, value in flags.items() if value is not None}
    settings = _SettingsReader(file, set_flags, environ).settings()
    if settings.store:
        return settings
    folder = data_folder or folders.data_folder(environ, Path.home())
    return msgspec.structs.replace(settings, store=_own_store(folder))


def find_store(*, config: Path | None, config_folder: Path, data_folder: Path, create: bool) -> str:
    """Return the store of a server with this file, for commands that work on it. Ignores the rest of the
    file: tokens can be created before the server could start. Creates its folder only with `create`;
    otherwise raises NotAStore if it does not exist. Raises InvalidSettings."""
    file = _settings_file(config, config_folder)
    server = file.tables.get("server", {})
    store = server.get("store", "") if isinstance(server, dict) else ""
    if not isinstance(store, str):
        at = file.line_of(("server", "store"))
        raise InvalidSettings(
            plain(f"{file.path}, line {at}: `store` must be a URL in quotes. Known: {SCHEMES}.")
        )
    if not store and not create and not (data_folder / STORE_NAME).exists():
        raise NotAStore(
            f"No store at {data_folder / STORE_NAME} yet. `turnledger serve` creates it; --store "
            "selects another."
        )
    return store or _own_store(data_folder)


def find_chat_settings(*, config: Path | None, config_folder: Path) -> ChatSettings:
    """Return the chat settings in the file, for commands that follow them. Ignores the rest of the file.
    Raises InvalidSettings."""
    file = _settings_file(config, config_folder)
    return _SettingsReader(file, {}, {}).chats()


def _settings_file(config: Path | None, config_folder: Path) -> SettingsFile:
    path = config or config_folder / FILE_NAME
    return SettingsFile.read(path) if config or path.is_file() else SettingsFile(path, "")


def _own_store(folder: Path) -> str:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # conversations are private
    except OSError as problem:
        message = f"{folder} cannot be created: {problem.strerror}. Choose a store with --store."
        raise InvalidSettings(plain(message)) from None
    return f"sqlite:///{(folder / STORE_NAME).as_posix()}"


class SettingsFile:
    """A TOML file that knows the line of each setting."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        try:
            self.tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            reason, _, location = str(problem).partition(" (at ")
            line = re.match(r"line (\d+)", location)
            at = line[1] if line else str(text.count("\n") + 1)
            remedy = 'Quote text, as in store = "memory:".'
            raise InvalidSettings(plain(f"{path}, line {at}: invalid TOML: {reason}. {remedy}")) from None

    @classmethod
    def read(cls, path: Path) -> SettingsFile:
        try:
            return cls(path, path.read_bytes().decode("utf-8"))
        except OSError as problem:
            raise InvalidSettings(
                plain(f"{path} cannot be read: {problem.strerror}. Choose another file with --config.")
            ) from None
        except UnicodeDecodeError as problem:
            line = problem.object.count(b"\n", 0, problem.start) + 1
            message = f"{path}, line {line}: not UTF-8. Save the file as UTF-8."
            raise InvalidSettings(plain(message)) from None

    def line_of(self, names: SettingPath) -> int:
        """Return the line of a setting, or else of its table."""
        current: SettingPath = ()
        best, best_line = 0, 1
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.lstrip().startswith("["):
                current = found = _keys_of(line.strip())
            else:
                key, equals, _ = line.partition("=")
                found = (*current, *_keys_of(f"{key} = 0")) if equals else ()
            common = _common_length(found, names)
            if common > best and (common == len(found) or common == len(names)):
                best, best_line = common, number
        return best_line


def _keys_of(toml: str) -> SettingPath:
    """Return the path of the only setting or table in a line of TOML."""
    try:
        table = tomllib.loads(toml)
    except tomllib.TOMLDecodeError:
        return ()
    names: list[str] = []
    while table:
        name, value = next(iter(table.items()))
        names.append(name)
        table = value if isinstance(value, dict) else {}
    return tuple(names)


def _common_length(first: SettingPath, second: SettingPath) -> int:
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count


def _choices(kind: type[msgspec.Struct], names: SettingPath) -> str:
    hint: Any = kind
    for name in names:
        is_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
        hint = (
            {each.name: each.type for each in msgspec.structs.fields(hint)}.get(name) if is_struct else None
        )
    kinds = (hint, *get_args(hint))
    values = [value for each in kinds if get_origin(each) is Literal for value in get_args(each)]
    values += [
        value for each in kinds if isinstance(each, type) and issubclass(each, StrEnum) for value in each
    ]
    return f" Known: {', '.join(values)}." if values else ""


class _SettingsReader:
    def __init__(self, file: SettingsFile, flags: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._file = file
        self._flags = flags
        self._environ = environ

    def settings(self) -> Settings:
        tables = self._file.tables
        for name in tables:
            if name not in TABLES:
                message = f"unknown table `{name}`. Known: [server], [chats], [models.NAME]."
                raise self._error((name,), message)
        server = self._table(("server",), tables.get("server", {}))
        for name, table_name in (("models", "[models.NAME]"), ("chats", "[chats]")):
            if name in server:
                raise self._error(("server", name), f"`{name}` has its own table: {table_name}.")
        self._check_names(("server",), server, Settings)
        for name, kind in (("limits", ServerLimits), ("timeouts", ModelTimeouts), ("defaults", Policies)):
            self._check_names(("server", name), self._table(("server", name), server.get(name, {})), kind)
        merged = self._with_flags(server)
        settings = self._build(("server",), merged, Settings)
        models = self._table(("models",), tables.get("models", {}))
        settings = msgspec.structs.replace(
            settings,
            models={name: self._model(name, table) for name, table in models.items()},
            chats=self.chats(),
        )
        self._check(settings)
        return settings

    def _with_flags(self, server: Mapping[str, Any]) -> dict[str, Any]:
        known = ServerLimits.__struct_fields__
        limits = {name: value for name, value in self._flags.items() if name in known}
        others = {name: value for name, value in self._flags.items() if name not in limits}
        merged = {**server, **others}
        if limits:
            merged["limits"] = {**server.get("limits", {}), **limits}
        return merged

    def chats(self) -> ChatSettings:
        keys = ("chats",)
        table = self._table(keys, self._file.tables.get("chats", {}))
        self._check_names(keys, table, ChatSettings)
        scopes = self._table((*keys, "scopes"), table.get("scopes", {}))
        for name, scope in scopes.items():
            self._check_names(
                (*keys, "scopes", name), self._table((*keys, "scopes", name), scope), ScopeSettings
            )
        chats = self._build(keys, table, ChatSettings)
        policies = [((*keys, "scopes", name), scope.reset) for name, scope in chats.scopes.items()]
        for path, policy in [(keys, chats.reset), *policies]:
            try:
                policy_of(policy)
            except InvalidInput as problem:
                raise self._error((*path, "reset"), f"`reset`: {problem}") from None
        self._check_naming(keys, chats)
        return chats

    def _check_naming(self, keys: SettingPath, chats: ChatSettings) -> None:
        for source in chats.named_by:
            if not is_name_source(source):
                known = ", ".join((BASE_URL, *NAMING_FIELDS))
                message = f"`{source}` cannot name conversations. Known: {known}, headers as in X-Chat-Id."
                raise self._error((*keys, "named_by"), message)
        for rule in chats.skip_when_header:
            try:
                split_skip_rule(rule)
            except ValueError:
                message = f"`{rule}` is not a header. Write its name, maybe with a pattern: `X-Task: title*`."
                raise self._error((*keys, "skip_when_header"), message) from None

    def _model(self, name: str, table: Any) -> ModelSettings:
        keys = ("models", name)
        self._check_names(keys, self._table(keys, table), ModelSettings)
        for part, kind in (("timeouts", ModelTimeouts), ("defaults", Policies)):
            inner = (*keys, part)
            self._check_names(inner, self._table(inner, table.get(part, {})), kind)
        model = self._build(keys, table, ModelSettings)
        self._check_upstream((*keys, "upstream"), model.upstream)
        self._check_variable((*keys, "api_key_env"), model.api_key_env)
        self._check_context(keys, model)
        return model

    def _check_context(self, keys: SettingPath, settings: ModelSettings | Settings) -> None:
        context, answer = settings.context_tokens, settings.answer_tokens
        if answer is not None and (context is None or answer >= context):
            limit = "not set" if context is None else context
            message = f"`answer_tokens` ({answer}) must be less than `context_tokens` ({limit})."
            raise self._error((*keys, "answer_tokens"), message)

    def _build(self, keys: SettingPath, table: Mapping[str, Any], kind: type[Table]) -> Table:
        try:
            return msgspec.convert(table, kind)
        except msgspec.ValidationError as problem:
            reason, _, path = str(problem).partition(" - at `$")
            inner = tuple(part.partition("[")[0] for part in path.strip("`.").split(".") if part)
            reason = f"{reason[:1].lower()}{reason[1:]}"
            subject = f"`{'.'.join(inner)}`: " if inner else ""
            raise self._error((*keys, *inner), f"{subject}{reason}.{_choices(kind, inner)}") from None

    def _table(self, keys: SettingPath, table: Any) -> dict[str, Any]:
        if not isinstance(table, dict):
            raise self._error(
                keys, f"`{keys[-1]}` must be a table. Write [{'.'.join(keys)}] on its own line."
            )
        return table

    def _check_names(self, keys: SettingPath, table: Mapping[str, Any], kind: type[msgspec.Struct]) -> None:
        known = [name for name in kind.__struct_fields__ if name not in OWN_TABLES]
        for name in table:
            if name not in known:
                matches = difflib.get_close_matches(name, known, 1)
                hint = f" Did you mean `{matches[0]}`?" if matches else ""
                message = f"`{name}` is not a setting of [{'.'.join(keys)}].{hint} Known: {', '.join(known)}."
                raise self._error((*keys, name), message)

    def _check(self, settings: Settings) -> None:
        if settings.store and not names_store(settings.store):
            raise self._error(("server", "store"), f"unknown kind of store URL. Known: {SCHEMES}.")
        if settings.workers > 1:
            self._check_workers(settings)
        for host in settings.hosts:
            if not is_host_name(host):
                raise self._error(("server", "hosts"), f"`{host}` is not a host name. Omit scheme and port.")
        named = {"origins": settings.origins, "frame_ancestors": settings.frame_ancestors}
        for name, origin in [(name, each) for name, origins in named.items() for each in origins]:
            if not is_origin(origin):
                raise self._error(
                    ("server", name),
                    f"`{origin}` is not an origin. Write scheme, host and port: http://localhost:3000.",
                )
        header = settings.credential_header
        if header is not None and not is_free_header(header):
            message = f"`{header}` is not a name for a header of its own. Write one, as in X-Upstream-Key."
            raise self._error(("server", "credential_header"), message)
        if header is not None and header.lower() in map(str.lower, settings.chats.named_by):
            message = f"`{header}` is the credential_header; names are stored. Use another header."
            raise self._error(("chats", "named_by"), message)
        self._check_title_model(settings)
        self._check_context(("server",), settings)
        if settings.upstream is not None:
            self._check_upstream(("server", "upstream"), settings.upstream)
        elif settings.api_key_env is not None:
            raise self._error(("server", "api_key_env"), "`api_key_env` requires `upstream`.")
        self._check_variable(("server", "api_key_env"), settings.api_key_env)

    def _check_title_model(self, settings: Settings) -> None:
        name = settings.chats.title_model
        known = list(settings.models) or [DEMO]
        if name and name not in known and settings.upstream is None:
            message = f"unknown model `{name}`. Known: {', '.join(known)}. Add a table: [models.{name}]."
            raise self._error(("chats", "title_model"), message)

    def _check_workers(self, settings: Settings) -> None:
        keys = ("server", "workers")
        if os.name != "posix":
            raise self._error(keys, "this system supports one worker only. Omit it.")
        if settings.store.startswith("memory:"):
            message = "several processes cannot share a store in memory. Use a file: --store sqlite:///path."
            raise self._error(keys, message)

    def _check_upstream(self, keys: SettingPath, url: str) -> None:
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:
            is_valid = False
        else:
            is_valid = is_valid and not (parts.username or parts.password or parts.fragment)
        if not is_valid:
            # Not echoed: it may hold a password.
            message = "not an upstream URL. Write http(s)://host/path, as in https://api.example.com/v1"
            raise self._error(keys, f"{message}; put the api_key in an environment variable (api_key_env).")

    def _check_variable(self, keys: SettingPath, variable: str | None) -> None:
        if variable is None or self._environ.get(variable):
            return
        if not _VARIABLE.fullmatch(variable):
            # Not echoed: it may be the key.
            raise self._error(keys, "not an environment variable. Put the key into one, and write its name.")
        raise self._error(
            keys, f"the environment variable {variable} is not set. Set it, or remove api_key_env."
        )

    def _error(self, keys: SettingPath, message: str) -> InvalidSettings:
        if keys[0] == "server" and keys[-1] in self._flags:
            flag = FLAGS.get(keys[-1], f"--{keys[-1].replace('_', '-')}")
            return InvalidSettings(plain(f"{flag}: {message}"))
        return InvalidSettings(plain(f"{self._file.path}, line {self._file.line_of(keys)}: {message}"))
