"""What every endpoint does that runs turns: count them, tell what went wrong, note whether the client heard.

The task that answers the request runs the turn: what the model says goes to the client as it comes, with no
other task in between. What tells the client that it is done leaves after the commit.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Any, Generic, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from turnledger.errors import TurnledgerError
from turnledger.runners.chat_model import ChatModel
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import Slot
from turnledger.server.errors import ClientGone, shutting_down
from turnledger.server.models.redacted import DiscreetModel
from turnledger.server.ops import logs
from turnledger.server.requests.allowed_fields import passed_on
from turnledger.server.requests.body import read_body
from turnledger.server.service import Service
from turnledger.server.turns.response import Answer
from turnledger.server.turns.run import Conversing
from turnledger.server.wire.client_stream import Outlet, cut_of

AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


class TurnEndpoint(ABC, Generic[AnyAnswer]):
    """An endpoint that runs turns, as a plain ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @abstractmethod
    def _make_answer(self, outlet: Outlet) -> AnyAnswer:
        """What the client is told by."""

    @abstractmethod
    async def _read(
        self, scope: Scope, receive: Receive, answer: AnyAnswer, place: Slot
    ) -> Conversing | None:
        """The turn that is asked for, to be run; None if there is none, and the request was answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who: Principal = scope["state"]["principal"]
        place = self._service.quotas.turn(who.owner, is_tokenless=who.token is None, link=who.link)
        outlet = Outlet(send, receive, cut=cut_of(scope))
        answer = self._make_answer(outlet)
        conversing: Conversing | None = None
        try:
            conversing = await self._read(scope, receive, answer, place)
            if conversing is not None:
                await conversing.run()
        except ClientGone:
            raise
        except TurnledgerError as problem:
            await self._fail(scope["state"], answer, problem)
        except asyncio.CancelledError:
            if not answer.is_good:
                answer.fail(shutting_down())
            raise
        except Exception as problem:
            logs.unexpected(problem, request_id=scope["state"]["request_id"])
            answer.fail(problem)
        finally:
            place.leave()  # the turn has ended, also for a client that takes its time to read the end
            all_of_it = await outlet.close(self._service.settings.limits.send_wait)
            answer.close()
            if conversing is not None:
                conversing.was_told(all_of_it=all_of_it)

    async def _fail(self, state: MutableMapping[str, Any], answer: Answer, problem: TurnledgerError) -> None:
        # Apart from where it was caught: a frame that keeps an exception, which keeps its frames, stays until
        # the garbage collector comes, and the body of the request with it.
        told = await self._told(state, problem)
        state["code"] = told.code
        answer.fail(told)

    async def _told(self, state: MutableMapping[str, Any], problem: TurnledgerError) -> TurnledgerError:
        """What a problem is told as: where no turn began, nobody has asked the store yet whether this one is
        still let in, and who is not learns nothing else."""
        if "turn" not in state:
            try:
                await self._service.admission.admit(state["head"])
            except TurnledgerError as refused:
                return refused
        return problem

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        limits = self._service.settings.limits
        return await read_body(scope, receive, limit=limits.body_bytes, wait=limits.body_wait)

    def _model(
        self,
        principal: Principal,
        named: str,
        settings: Mapping[str, Any],
        stream_options: msgspec.Raw | None,
    ) -> tuple[ChatModel, Mapping[str, Any]]:
        """Who answers, and what he is asked with. Raises Refused if the caller may not ask him, or not for
        that."""
        found = self._service.models.find(named, principal)
        model, name = found.model, found.upstream_name
        self._service.models.check_fields(settings, principal)
        more = self._service.settings.passed_fields
        settings = passed_on(settings, stream_options, principal.token, more, found)
        if principal.is_narrowed:
            model = DiscreetModel(model)
        return model, settings if name == named else {**settings, "model": name}
