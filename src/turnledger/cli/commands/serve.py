"""`turnledger serve`: the HTTP server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.model.text.plain import plain

if TYPE_CHECKING:
    from turnledger.server.config.settings import Settings
    from turnledger.server.listen.channel import ReadyReport

_WITHOUT_TOKEN = {
    False: "Programs on this machine need no token. Behind any proxy, create one first: "
    "turnledger tokens create",
    True: "Everyone who can reach the server may use it without a token.",
}
"""The access to a server without tokens, by `insecure`."""


def limit_option(noun: str) -> Any:
    return typer.Option(metavar="N", help=f"Maximum number of {noun}.")


def serve(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Default: a SQLite file in your data folder.")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A server with /chat/completions. Default: the demo model."),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the upstream's api_key.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: turnledger.toml in your configuration folder."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Default: 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Default: 8383. 0: any free port.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes that serve requests. Default: 1")
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Host name that clients may use. Repeatable."),
    ] = None,
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", metavar="ORIGIN", help="Web pages that may call: http://localhost:3000. Repeatable."
        ),
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Serve everyone without a token.")
    ] = None,
    grace: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time for running turns at shutdown. Default: 20")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="console|json", help="Default: console on a terminal, else json.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error. Default: info")
    ] = None,
    body_bytes: Annotated[int | None, limit_option("bytes in a request body")] = None,
    requests: Annotated[int | None, limit_option("requests open at once")] = None,
    turns: Annotated[int | None, limit_option("turns open at once")] = None,
    waiting: Annotated[int | None, limit_option("turns that have not begun")] = None,
    streams: Annotated[int | None, limit_option("event streams open at once")] = None,
    owner_turns: Annotated[int | None, limit_option("turns open at once per owner")] = None,
    owner_waiting: Annotated[int | None, limit_option("turns that have not begun, per owner")] = None,
    owner_streams: Annotated[int | None, limit_option("event streams open at once per owner")] = None,
    owner_requests: Annotated[int | None, limit_option("other requests open at once per owner")] = None,
    owner_turns_per_minute: Annotated[int | None, limit_option("turns per minute and owner")] = None,
    owner_bytes: Annotated[int | None, limit_option("bytes stored per owner")] = None,
    owner_chats: Annotated[int | None, limit_option("chats per owner")] = None,
    queue_length: Annotated[int | None, limit_option("turns queued in one conversation")] = None,
    queue_wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Maximum time that a turn waits for earlier ones.")
    ] = None,
) -> None:
    """Serve conversations over HTTP, compatible with the OpenAI API.

    Without options: the demo model, a SQLite file in your data folder, on this machine only. SIGTERM or
    Ctrl-C stops it once running turns have ended, or after the grace time; a second one stops it at once.
    With several workers, SIGHUP replaces them one by one, and reads the settings again.
    """
    flags = {name: value for name, value in locals().items() if name != "config"}
    _run(flags, config)


def _run(flags: dict[str, Any], config: Path | None) -> None:
    from turnledger.server.chat_page.files import is_built
    from turnledger.server.config.file import load_settings
    from turnledger.server.listen.serve import serve
    from turnledger.server.ops.logs import configure
    from turnledger.stores.url import described

    def load() -> Settings:
        return load_settings(flags, config=config, environ=os.environ)

    settings = load()
    log_format = settings.log_format or ("console" if sys.stderr.isatty() else "json")
    configure(log_format, settings.log_level, sys.stderr)

    def announce(url: str, ready: ReadyReport) -> None:
        models = ", ".join(ready.models) if settings.upstream is None else "all of the upstream"
        access = _WITHOUT_TOKEN[settings.insecure] if ready.is_tokenless else "Only with a token."
        page = "Open it in a browser." if is_built() else "The chat page is not built: run make page."
        lines = (
            f"Store: {described(settings.store)}",
            f"Models: {models}",
            f"Access: {access}",
            f"Turnledger is at {url}. {page}",
        )
        typer.echo("\n".join(map(plain, lines)))

    if settings.workers == 1:
        raise typer.Exit(serve(settings, os.environ, announce))
    from turnledger.server.listen.supervisor import supervise  # needs POSIX, as several workers do

    supervise(settings, os.environ, announce, load)
