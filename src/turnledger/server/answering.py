"""Answering: every status that an endpoint can answer with, and what it means there.

What comes of its own work an endpoint says itself. What comes of the way that all requests go, through guard,
admission, limits and the reading of a body, follows from what kind of endpoint it is.

500 is not among them: it would be a fault of the server, or a store that is damaged.
"""

from __future__ import annotations

from turnledger.server.endpoint import Endpoint

NOT_VALID = "The request is not valid. Nothing changed; the message says what is wrong."
NOT_LET_IN = "There is no token, or it is not valid any more."
NOT_ALLOWED = "This token may not do this; or the request names another host, or comes from a foreign page."
FOREIGN = "The request names another host, or comes from a foreign page."
SLOW_BODY = "The body did not arrive in time."
LARGE_BODY = "The body is larger than the server takes."
NOT_JSON = "The body is not declared to be JSON."
TOO_MANY = "More is open than may be, of this owner or of all. Try again after `Retry-After` seconds."
NOT_NOW = "The server is about to end, or its store cannot be reached. Try again."
NO_STORE = "The store cannot be reached. Try again."


def all_answers(endpoint: Endpoint) -> dict[int, str]:
    """What each status means that the endpoint can answer with, in order."""
    told = {400: NOT_VALID, 415: NOT_JSON, **_of_who_asks(endpoint), **_of_limits(endpoint)}
    if endpoint.body is not None:
        told |= {408: SLOW_BODY} if endpoint.is_unbounded else {408: SLOW_BODY, 413: LARGE_BODY}
    return dict(sorted({**told, **endpoint.answers}.items()))


def _of_who_asks(endpoint: Endpoint) -> dict[int, str]:
    if endpoint.is_public:
        return {403: FOREIGN}
    return {401: NOT_LET_IN, 403: NOT_ALLOWED, 503: NO_STORE}


def _of_limits(endpoint: Endpoint) -> dict[int, str]:
    return {} if endpoint.while_ending else {429: TOO_MANY, 503: NOT_NOW}
