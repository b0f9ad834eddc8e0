"""Settings from flags, a file and the platform folders; each error names its line and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.retention import Lifetime, Lifetimes
from turnledger.server.config.file import InvalidSettings, load_settings
from turnledger.server.config.folders import config_folder, data_folder
from turnledger.server.config.settings import (
    ChatSettings,
    ModelSettings,
    ModelTimeouts,
    ScopeSettings,
    ServerLimits,
    Settings,
    is_host_name,
    is_origin,
)

WHOLE = """
[server]
host = "127.0.0.1"
port = 9000
store = "sqlite:///chats.db"
hosts = ["chat.example"]
origins = ["http://localhost:3000"]
grace = 5
log_format = "json"
log_level = "warning"
upstream = "https://api.example/v1"
api_key_env = "API_KEY"

[server.limits]
body_bytes = 1000
queue_wait = 2.5

[server.timeouts]
connect = 1

[models.fast]
upstream = "http://localhost:11434/v1"
model = "llama3.2"

[models."much slower"]
upstream = "http://localhost:11434/v1"
api_key_env = "API_KEY"
timeouts = { total = 60 }
"""


def load(tmp_path: Path, text: str | None = None, **flags: Any) -> Settings:
    config = None
    if text is not None:
        config = tmp_path / "my.toml"
        config.write_text(text)
    return load_settings(
        flags,
        config=config,
        config_folder=tmp_path / "config",
        data_folder=tmp_path / "data",
        environ={"API_KEY": "secret", "EMPTY": ""},
    )


def problem(tmp_path: Path, text: str | None = None, **flags: Any) -> str:
    with pytest.raises(InvalidSettings) as raised:
        load(tmp_path, text, **flags)
    message = str(raised.value)
    assert message.isprintable()
    assert message.endswith(".")
    return message.replace(f"{tmp_path}/", "")


def test_settings_default_to_a_private_store_in_the_data_folder(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings(store=f"sqlite:///{tmp_path}/data/chats.db")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_settings_file_can_set_every_option(tmp_path: Path) -> None:
    assert load(tmp_path, WHOLE) == Settings(
        port=9000,
        store="sqlite:///chats.db",
        hosts=("chat.example",),
        origins=("http://localhost:3000",),
        grace=5.0,
        log_format="json",
        log_level="warning",
        limits=ServerLimits(body_bytes=1000, queue_wait=2.5),
        timeouts=ModelTimeouts(connect=1.0),
        upstream="https://api.example/v1",
        api_key_env="API_KEY",
        models={
            "fast": ModelSettings(upstream="http://localhost:11434/v1", model="llama3.2"),
            "much slower": ModelSettings(
                upstream="http://localhost:11434/v1",
                api_key_env="API_KEY",
                timeouts=ModelTimeouts(total=60.0),
            ),
        },
    )


def test_flag_overrides_the_settings_file(tmp_path: Path) -> None:
    settings = load(tmp_path, WHOLE, port=1, log_format=None, body_bytes=7, insecure=True, host="0.0.0.0")
    assert (settings.port, settings.log_format, settings.host) == (1, "json", "0.0.0.0")
    assert settings.limits == ServerLimits(body_bytes=7, queue_wait=2.5)


def test_settings_file_of_the_user_is_read_and_that_of_the_current_folder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "turnledger.toml").write_text("[server]\nport = 1\n")
    monkeypatch.chdir(tmp_path / "here")
    assert load(tmp_path).port == 8383
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "turnledger.toml").write_text("[server]\nport = 2\n")
    assert load(tmp_path).port == 2
    assert load(tmp_path, "[server]\nport = 3\n").port == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[server]\nport = 80 80\n", "my.toml, line 2: invalid TOML: "),
        ("[server]\nstore = memory:\n", "my.toml, line 2: invalid TOML: "),
        ("[server\n", "my.toml, line 1: invalid TOML: "),
        ("\nserver = 3\n", "my.toml, line 2: `server` must be a table. Write [server]"),
        (
            "# a\n[sever]\n",
            "my.toml, line 2: unknown table `sever`. Known: [server], [chats], [models.NAME].",
        ),
        (
            "[server]\n\nprot = 1\n",
            "my.toml, line 3: `prot` is not a setting of [server]. Did you mean `port`",
        ),
        ("server.prot = 1\n", "my.toml, line 1: `prot` is not"),
        ("[server]\nport = '80'\n", "my.toml, line 2: `port`: expected `int`, got `str`."),
        ("[server]\nport = 99999\n", "my.toml, line 2: `port`: expected `int` <= 65535."),
        ("[server]\ngrace = -1\n", "my.toml, line 2: `grace`: expected `float` >= 0"),
        ("[server]\ngrace = nan\n", "my.toml, line 2: `grace`: "),
        (
            "[server]\ncredential_header = 'Authorization'\n",
            "my.toml, line 2: `Authorization` is not a name for a header of its own. Write one",
        ),
        (
            "[server]\ncredential_header = 'X-Context'\n",
            "my.toml, line 2: `X-Context` is not a name for a header of its own. Write one",
        ),
        (
            "[server]\npassed_paths = ['files']\n",
            "my.toml, line 2: `passed_paths`: invalid enum value 'files'. Known: ",
        ),
        (
            "[server]\nlog_level = 'loud'\n",
            "my.toml, line 2: `log_level`: invalid enum value 'loud'. Known: debug, info, warning, error.",
        ),
        (
            "[server]\nlog_format = 'xml'\n",
            "my.toml, line 2: `log_format`: invalid enum value 'xml'. Known: console, json.",
        ),
        (
            "[server]\ntimeouts = {connect = 0}\n",
            "my.toml, line 2: `timeouts.connect`: expected `float` > 0.0.",
        ),
        (
            "[models.a]\nupstream = 'http://a'\ntimeouts.total = 0\n",
            "my.toml, line 3: `timeouts.total`: expected `float` > 0.0.",
        ),
        (
            "[server.defaults]\non_busi = 'queue'\n",
            "my.toml, line 2: `on_busi` is not a setting of [server.defaults]. Did you mean `on_busy`?",
        ),
        (
            "[server.defaults]\non_stop = 'kept'\n",
            "my.toml, line 2: `defaults.on_stop`: invalid enum value 'kept'. Known: keep, discard.",
        ),
        (
            "[models.a]\nupstream = 'http://a'\ndefaults = {messages = 'old'}\n",
            "my.toml, line 3: `defaults.messages`: invalid enum value 'old'. Known: new, full.",
        ),
        ("[server]\nhosts = 'a'\n", "my.toml, line 2: `hosts`: expected `array`, got `str`."),
        ("[server]\nhosts = ['a', 3]\n", "my.toml, line 2: `hosts`: expected `str`, got `int`."),
        ("[server]\nhosts = ['http://a']\n", "my.toml, line 2: `http://a` is not a host name."),
        ("[server]\norigins = ['*']\n", "my.toml, line 2: `*` is not an origin."),
        ("[server]\nframe_ancestors = [\"'self'\"]\n", "my.toml, line 2: `'self'` is not an origin."),
        (
            "[server]\nframe_ancestors = ['https://a.example/; x']\n",
            "my.toml, line 2: `https://a.example/; x` is not",
        ),
        ("[server]\norigins = ['null']\n", "my.toml, line 2: `null` is not an origin."),
        ("[server]\nstore = 'mysql://u:secret@h'\n", "my.toml, line 2: unknown kind of store URL."),
        (
            "[server]\n[server.limits]\nbody = 1\n",
            "my.toml, line 3: `body` is not a setting of [server.",
        ),
        (
            "[server]\nlimits = {body_bytes = 0}\n",
            "my.toml, line 2: `limits.body_bytes`: expected `int` >=",
        ),
        ("[server.limits]\nrequests = 0\n", "my.toml, line 2: `limits.requests`: expected `int` >= 1."),
        ("[server]\nlimits = 3\n", "my.toml, line 2: `limits` must be a table. Write [server.limits]"),
        ("[server.models.a]\n", "my.toml, line 1: `models` has its own table: [models.NAME]."),
        ("[server]\nupstream = 'ftp://a'\n", "my.toml, line 2: not an upstream URL."),
        (
            "[server]\nupstream = 'http://u:secret@a'\n",
            "my.toml, line 2: not an upstream URL.",
        ),
        ("[server]\napi_key_env = 'API_KEY'\n", "my.toml, line 2: `api_key_env` requires `upstream`"),
        (
            "[server]\nupstream = 'http://a'\napi_key_env = 'EMPTY'\n",
            "my.toml, line 3: the environment variable EMPTY is not set.",
        ),
        ("[models]\na = 'http://a'\n", "my.toml, line 2: `a` must be a table. Write [models.a]"),
        ("[models.a]\nmodel = 'x'\n", "my.toml, line 1: object missing required field `upstream`."),
        (
            "[models.b]\nupstream = 'http://b'\n[models.a]\nupstream = 'http://a'\napi_key = 'secret'\n",
            "my.toml, line 5: `api_key` is not a setting of [models.a]. Did you mean `api_key_env`?",
        ),
        ("[models.a]\nupstream = 'localhost'\n", "my.toml, line 2: not an upstream URL."),
        (
            "[models.'a b']\nupstream = 'http://a'\ntimeouts.connect = 'x'\n",
            "my.toml, line 3: `timeouts.connect`: expected `float`, got `str`.",
        ),
        (
            "[models.a]\nupstream = 'http://a'\napi_key_env = 'NOT_SET'\n",
            "my.toml, line 3: the environment variable NOT_SET is not set. Set it, or remove api_key_env.",
        ),
        ("[chats]\nkep = true\n", "my.toml, line 2: `kep` is not a setting of [chats]. Did you mean `keep`?"),
        ("[chats]\nkeep = 'no'\n", "my.toml, line 2: `keep`: expected `bool`, got `str`."),
        (
            "[chats.scopes.desk]\nkept = true\n",
            "my.toml, line 2: `kept` is not a setting of [chats.scopes.desk].",
        ),
        (
            "[chats]\nnamed_by = ['users']\n",
            "my.toml, line 2: `users` cannot name conversations. Known: base_url, metadata.",
        ),
        ("[chats]\nnamed_by = ['X-Request-Id']\n", "my.toml, line 2: `X-Request-Id` cannot name"),
        (
            "[server]\ncredential_header = 'X-Mine'\n[chats]\nnamed_by = ['x-mine']\n",
            "my.toml, line 4: `X-Mine` is the credential_header; names are stored.",
        ),
        ("[chats]\nskip_when_header = ['X Task']\n", "my.toml, line 2: `X Task` is not a header. Write its"),
        ("[chats]\nskip_when_header = ['X-Task:']\n", "my.toml, line 2: `X-Task:` is not a header."),
        ("[chats]\nscopes = 3\n", "my.toml, line 2: `scopes` must be a table. Write [chats.scopes]"),
        (
            "[chats]\ntitle_model = 'tiny'\n",
            "my.toml, line 2: unknown model `tiny`. Known: demo. Add a table",
        ),
        ("[server.chats]\nkeep = true\n", "my.toml, line 1: `chats` has its own table: [chats]."),
        ('[server]\n"\\u001b[2J" = 1\n', "my.toml, line 2: `\\x1b[2J` is not a setting"),
    ],
)
def test_settings_file_error_names_the_line_and_the_remedy(tmp_path: Path, text: str, expected: str) -> None:
    message = problem(tmp_path, text)
    assert message.startswith(expected)
    assert "secret" not in message


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"port": 99999}, "--port: `port`: expected `int` <= 65535."),
        (
            {"log_format": "xml"},
            "--log-format: `log_format`: invalid enum value 'xml'. Known: console, json.",
        ),
        ({"upstream": "nonsense"}, "--upstream: not an upstream URL."),
        ({"store": "nonsense"}, "--store: unknown kind of store URL."),
        ({"workers": 0}, "--workers: `workers`: expected `int` >= 1."),
        ({"workers": 2, "store": "memory:"}, "--workers: several processes cannot share a store in memory."),
        ({"body_bytes": 0}, "--body-bytes: `limits.body_bytes`: expected `int` >= 1."),
        ({"upstream": "http://a", "api_key_env": "NOT_SET"}, "--api-key-env: the environment variable"),
        ({"upstream": "http://a", "api_key_env": "sk-secret"}, "--api-key-env: not an environment variable."),
        ({"hosts": ["a.test", "http://b.test"]}, "--allow-host: `http://b.test` is not a host name."),
        ({"hosts": [""]}, "--allow-host: `` is not a host name."),
        ({"origins": ["localhost:3000"]}, "--origin: `localhost:3000` is not an origin."),
        ({"origins": ["*"]}, "--origin: `*` is not an origin."),
    ],
)
def test_invalid_flag_error_names_the_flag(tmp_path: Path, flags: dict[str, Any], expected: str) -> None:
    message = problem(tmp_path, "[server]\ngrace = 3\n", **flags)
    assert message.startswith(expected)
    assert "secret" not in message


def test_unreadable_settings_file_is_reported_with_the_reason(tmp_path: Path) -> None:
    def message_of(config: Path) -> str:
        with pytest.raises(InvalidSettings) as refused:
            load_settings({}, config=config, config_folder=tmp_path, data_folder=tmp_path, environ={})
        return str(refused.value)

    assert message_of(tmp_path / "none.toml").endswith(
        "none.toml cannot be read: No such file or directory. Choose another file with --config."
    )
    assert "Is a directory" in message_of(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"[server]\n# caf\xe9\n")
    assert message_of(tmp_path / "latin.toml").endswith("line 2: not UTF-8. Save the file as UTF-8.")


def test_uncreatable_data_folder_is_reported_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert problem(tmp_path).startswith("data cannot be created: File exists. Choose a store with --store.")


def test_chat_settings_are_read_globally_and_by_scope(tmp_path: Path) -> None:
    text = (
        "[chats]\nkeep = false\ntitle_model = 'demo'\n[chats.scopes.desk]\nkeep = true\n[chats.scopes.shop]\n"
    )
    scopes = {"desk": ScopeSettings(keep=True), "shop": ScopeSettings()}
    assert load(tmp_path, text).chats == ChatSettings(keep=False, title_model="demo", scopes=scopes)


def test_title_model_may_be_any_name_with_an_upstream(tmp_path: Path) -> None:
    text = "[server]\nupstream = 'http://a'\n[chats]\ntitle_model = 'tiny'\n"
    assert load(tmp_path, text).chats.title_model == "tiny"


def test_title_model_may_be_empty_without_an_upstream(tmp_path: Path) -> None:
    assert load(tmp_path, "[chats]\ntitle_model = ''\n").chats.title_model == ""


HOME = Path("/home/ann")


@pytest.mark.parametrize(
    ("platform", "config", "data"),
    [
        ("linux", ".config/turnledger", ".local/share/turnledger"),
        ("darwin", "Library/Application Support/turnledger", "Library/Application Support/turnledger"),
        ("win32", "AppData/Roaming/turnledger", "AppData/Local/turnledger"),
    ],
)
def test_config_and_data_folders_follow_the_platform(platform: str, config: str, data: str) -> None:
    assert config_folder({}, HOME, platform) == HOME / config
    assert data_folder({}, HOME, platform) == HOME / data


def test_config_and_data_folders_follow_the_xdg_variables() -> None:
    environ = {"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"}
    assert config_folder(environ, HOME, "linux") == Path("/c/turnledger")
    assert data_folder(environ, HOME, "linux") == Path("/d/turnledger")


def test_relative_xdg_variables_are_ignored() -> None:
    for value in ("", ".", "relative/path"):
        environ = {"XDG_CONFIG_HOME": value, "XDG_DATA_HOME": value}
        assert config_folder(environ, HOME, "linux") == HOME / ".config/turnledger"
        assert data_folder(environ, HOME, "linux") == HOME / ".local/share/turnledger"


def test_host_name_and_origin_validators_accept_only_wellformed_values() -> None:
    assert all(map(is_host_name, ["chat.example", "10.0.0.1", "[fd00::1]", "Chat.Example"]))
    assert not any(map(is_host_name, ["http://chat.example", "chat.example:80", "", "*", "a b"]))
    assert all(map(is_origin, ["http://localhost:3000", "https://chat.example", "app://page"]))
    assert not any(map(is_origin, ["null", "*", "localhost:3000", "http://a/", "http://a b", "http://A"]))


@pytest.mark.parametrize("table", ["server", "models.one"])
@pytest.mark.parametrize("text", ["answer_tokens = 5", "context_tokens = 5\nanswer_tokens = 5"])
def test_answer_longer_than_the_context_is_reported(tmp_path: Path, table: str, text: str) -> None:
    found = problem(tmp_path, f"[{table}]\nupstream = 'http://localhost:1'\n{text}\n")
    line = 3 + text.count("\n")
    context = "5" if "context" in text else "not set"
    assert found == (
        f"my.toml, line {line}: `answer_tokens` (5) must be less than `context_tokens` ({context})."
    )


def test_lifetime_of_chats_is_read_globally_and_by_scope(tmp_path: Path) -> None:
    text = (
        "[chats]\nexpires_after = 3600\nreset = 'daily 4 Europe/Berlin'\n"
        "[chats.scopes.desk]\nreset = 'never'\n[chats.scopes.shop]\nexpires_after = 0.5\n"
    )
    desk, shop = Lifetime(reset=ResetPolicy.never()), Lifetime(expires_after=0.5)
    assert load(tmp_path, text).chats.lifetimes == Lifetimes(
        expires_after=3600, reset=ResetPolicy.daily(4, "Europe/Berlin"), scopes={"desk": desk, "shop": shop}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[chats]\nreset = 'weekly'\n",
            "my.toml, line 2: `reset`: Unknown reset policy 'weekly'. "
            "Known: never, idle SECONDS, daily HOUR [TIMEZONE].",
        ),
        ("[chats]\nreset = ''\n", "my.toml, line 2: `reset`: Unknown reset policy ''."),
        ("[chats.scopes.desk]\nreset = 'daily 25'\n", "my.toml, line 2: `reset`: An hour is"),
        ("[chats]\nexpires_after = 0\n", "my.toml, line 2: `expires_after`: expected `float` > 0"),
    ],
)
def test_invalid_lifetime_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    assert problem(tmp_path, text).startswith(message)
