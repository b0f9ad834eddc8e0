"""Tokens, for a server and its operator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from turnledger.engine.access.tokens import (
    Admission,
    CreateToken,
    FindRequest,
    ListTokens,
    RevokeToken,
    create,
    find,
    find_all,
    list_tokens,
    record_uses,
    revoke,
    secret_of,
)
from turnledger.engine.ports import Sync
from turnledger.engine.process import Process
from turnledger.engine.turn.policies import parse_policies
from turnledger.engine.turn.validation import check_limit, check_name, check_scope
from turnledger.errors import InvalidInput
from turnledger.model.access.token import (
    MOST,
    MOST_MODELS,
    Bounds,
    Token,
    TokenScope,
    digest_of,
    new_token_text,
)
from turnledger.model.conversation import EVERYWHERE, LONGEST, TEXT_LENGTH, Within
from turnledger.model.ids import ConversationId, RandomBits, TokenId
from turnledger.model.item import is_unicode


class Tokens:
    """The tokens of a ledger's store."""

    def __init__(self, process: Process, secret_bits: RandomBits, tokenless: str) -> None:
        self._process = process
        self._secret_bits = secret_bits
        self._tokenless = tokenless

    def __repr__(self) -> str:
        return f"<Tokens of {type(self._process.store).__name__}>"

    async def create(
        self,
        *,
        scopes: Iterable[TokenScope | str],
        owner: str | None = None,
        name: str = "",
        chat_scope: str | None = None,
        conversation: str | None = None,
        models: Iterable[str] | None = None,
        expires_at: int | None = None,
        lifetime: float | None = None,
        parent: str | None = None,
        max_tokens: int | None = None,
        n: int | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> tuple[Token, str]:
        """Create a token, and return it with its text: the secret that authenticates its bearer. The text is
        not stored and returned only here.

        It gives access to the conversations of its owner. `chat_scope` narrows it to one scope,
        `conversation` to a single conversation, read-only, `models` to some models. It ends at `expires_at`,
        in milliseconds since 1970, or after a `lifetime` in seconds. `parent` is the id of the token that
        creates it, and bounds it: whatever is not given is taken from the parent. Without a parent, the
        operator of the store creates it, for any owner. Once there is a token, callers without one are
        refused. A request may ask for answers of at most `max_tokens` tokens, and for at most `n` of them.
        `defaults` are the policies of its turns on a server, such as `{"on_busy": "reject"}`, unless a
        request chooses.

        Raises InvalidInput; ConversationNotFound, ConversationDeleted or ConversationExpired, if its owner
        has no such conversation; TokenEnded, if the parent is no longer valid; TokenTooWide, if the parent
        lacks `admin` or something that the new one is to have; TooManyTokens.
        """
        process, text, now = self._process, new_token_text(self._secret_bits), self._process.clock.now_ms()
        check_names(owner, name)
        if chat_scope is not None:
            check_scope("chat_scope", chat_scope)
        parse_policies(defaults or {})
        request = CreateToken(
            id=process.ids.new(TokenId),
            digest=digest_of(text),
            owner=owner,
            name=name,
            scopes=_scopes(scopes),
            chat_scope=chat_scope,
            conversation=None if conversation is None else ConversationId(conversation),
            models=None if models is None else check_models(models),
            expires_at=end_of(expires_at, lifetime, now),
            parent=None if parent is None else TokenId(parent),
            bounds=bounds_of(max_tokens=max_tokens, n=n),
            defaults=defaults,
            tokenless=self._tokenless,
            limit=process.limits.tokens,
            now=now,
            due=process.clock.due_ms(),
        )
        return await process.persist_whole(create, request), text

    async def find(self, digest: bytes | None) -> Admission:
        """Look up the token with this digest; None for a caller without one."""
        return await self._process.store.read_whole(find, FindRequest(digest, self._tokenless))

    async def find_all(self, digests: Collection[bytes]) -> dict[bytes, Token]:
        """Look up many tokens at once, in any state; leaves out unknown ones."""
        return await self._process.store.read_whole(find_all, digests)

    async def list(
        self,
        *,
        owner: str | None = None,
        within: Within = EVERYWHERE,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Token]:
        """Return a page of tokens in any state, the newest first: those of one owner, or of all, that give no
        access outside `within`. `before` is the last id of the previous page."""
        cursor = None if before is None else TokenId(before)
        request = ListTokens(owner, within, cursor, check_limit(limit))
        return await self._process.store.read_whole(list_tokens, request)

    async def revoke(
        self, id: str, *, owner: str | None = None, within: Within = EVERYWHERE, by: str | None = None
    ) -> tuple[Token, ...]:
        """Revoke a token and all its descendants; return them, itself first.

        Once this returns, no process begins a turn that was authorized by one of them. Revoking again
        changes nothing. Raises TokenNotFound, also for tokens that the `owner` or the caller's `within` does
        not see. `by` is the id of the calling token: one made by another token revokes only itself and its
        descendants.
        """
        revoker = None if by is None else TokenId(by)
        request = RevokeToken(TokenId(id), owner, within, self._process.clock.now_ms(), revoker)
        return await self._process.persist_whole(revoke, request)

    async def store_secret(self) -> bytes:
        """Return 32 secret bytes that all processes with access to the store share."""
        return await self._process.store.read_whole(secret_of, None)

    async def record_uses(self, uses: Mapping[TokenId, int]) -> None:
        """Record when tokens were last used, many at once; in milliseconds since 1970, and only forward."""
        if uses:
            await self._process.persist_whole(record_uses, uses, Sync.PROCESS)


def _scopes(given: Iterable[TokenScope | str]) -> frozenset[TokenScope]:
    named = [given] if isinstance(given, str) else list(given)
    for each in named:
        if each not in tuple(TokenScope):
            raise InvalidInput(f"{each!r} is not a scope. Known: {', '.join(TokenScope)}.")
    if not named:
        raise InvalidInput(f"A token needs at least one scope. Known: {', '.join(TokenScope)}.")
    return frozenset(TokenScope(each) for each in named)


def check_names(owner: str | None, name: str) -> None:
    """Check the owner and the name of a token or link."""
    if owner is not None:
        check_name("owner", owner)
    if len(name) > TEXT_LENGTH or not is_unicode(name):
        raise InvalidInput(f"name must be Unicode text of at most {TEXT_LENGTH} characters.")


def check_models(given: Iterable[str]) -> tuple[str, ...]:
    """Return the models that a token or link is narrowed to, each once."""
    names = tuple(dict.fromkeys([given] if isinstance(given, str) else given))
    for each in names:
        check_name("models", each)
    if len(names) > MOST_MODELS:
        raise InvalidInput(f"A token can be narrowed to at most {MOST_MODELS} models.")
    return names


def bounds_of(**given: int | None) -> Bounds:
    """Return the bounds of a token or link. Raises InvalidInput for an invalid count."""
    return Bounds(**{name: check_count(name, value) for name, value in given.items()})


def check_count(name: str, value: int | None) -> int | None:
    if value is not None and not 1 <= value <= MOST:
        raise InvalidInput(f"{name} must be 1 to {MOST}.")
    return value


def end_of(expires_at: int | None, lifetime: float | None, now: int, name: str = "lifetime") -> int | None:
    """Return `expires_at`, or the time `lifetime` seconds from now."""
    if lifetime is None:
        if expires_at is not None and not 0 <= expires_at <= now + LONGEST * 1000:
            raise InvalidInput(f"expires_at must be a time within {LONGEST:g} seconds from now.")
        return expires_at
    if expires_at is not None:
        raise InvalidInput("Give expires_at or lifetime, not both.")
    if not 0 < lifetime <= LONGEST:
        raise InvalidInput(f"{name} must be above 0 and at most {LONGEST:g} seconds.")
    return now + max(1, round(lifetime * 1000))
