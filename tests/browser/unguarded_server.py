"""`turnledger` without its guard: `python -m tests.browser.unguarded_server serve`."""

from turnledger.cli import main
from turnledger.server.access.guard import Guard, RequestHead


def check(self: Guard, head: RequestHead, *, is_page: bool = False, takes_form: bool = False) -> None:
    pass


def response_headers(self: Guard, head: RequestHead) -> tuple[tuple[bytes, bytes], ...]:
    """Let everybody read."""
    return ((b"access-control-allow-origin", b"*"),)


if __name__ == "__main__":
    Guard.check = check  # type: ignore[method-assign]
    Guard.response_headers = response_headers  # type: ignore[method-assign]
    main()
