"""Pages of items, in the shape of the API's lists: in either order, after an item of the page before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.datastructures import QueryParams

from turnledger.errors import InvalidInput
from turnledger.model.turn import Turn
from turnledger.server.openapi.endpoint import Parameter
from turnledger.server.openapi.schemas import STRING, Schema
from turnledger.server.requests.query import choice_of, number_of
from turnledger.server.responses.items import PlacedItem, placed_items
from turnledger.server.responses.response import ResponseFields

MOST = 100
DEFAULT = 20
UNKNOWN_AFTER = "Unknown `after`. Pass `last_id` from the previous page."
PAGING: Mapping[str, Parameter] = {
    "limit": Parameter("Most objects of the page.", {"type": "integer", "minimum": 1, "maximum": MOST}),
    "order": Parameter("`desc`, the newest first, or `asc`.", {"type": "string", "enum": ["asc", "desc"]}),
    "after": Parameter("The `last_id` of the page before.", STRING),
    "include": Parameter("Accepted, and ignored: there is no further data."),
    "include[]": Parameter("The same, as clients of the official libraries send it."),
}


class Paging(Struct, frozen=True):
    limit: int
    is_ascending: bool
    after: str | None

    @classmethod
    def of(cls, query: QueryParams) -> Paging:
        """Read the parameters of a list. Raises InvalidInput."""
        limit = number_of(query.get("limit"), "limit", DEFAULT)
        if not 1 <= limit <= MOST:
            raise InvalidInput(f"limit must be from 1 to {MOST}.", param="limit")
        is_ascending = choice_of(query.get("order"), "order", {"asc": True, "desc": False}, default=False)
        return cls(limit, is_ascending, query.get("after"))


def list_of(shown: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a list object."""
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": has_more,
    }


def shown_items(turn: Turn, hidden: Collection[int]) -> list[PlacedItem]:
    """Return the items of a turn that its user sees."""
    return [placed for placed in placed_items(turn) if placed.place not in hidden]


def show_placed(turn: Turn, placed: PlacedItem) -> dict[str, Any]:
    return ResponseFields(turn.id, None, turn.details).show_placed(turn, placed)


def list_schema_of(item: Schema) -> Schema:
    nullable_id = {"type": ["string", "null"]}
    properties = {
        "object": {"const": "list"},
        "data": {"type": "array", "items": item},
        "first_id": nullable_id,
        "last_id": nullable_id,
        "has_more": {"type": "boolean"},
    }
    return {"type": "object", "required": list(properties), "properties": properties}
