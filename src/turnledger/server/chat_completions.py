"""POST /v1/chat/completions: in a conversation every request is a turn; without one, or where
nothing is to be kept, it is passed through.

The task that answers the request runs the turn: what the model says goes to the client as it comes, with no
other task in between. What tells the client that it is done leaves after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from turnledger.errors import TurnledgerError
from turnledger.runners.chat_model import Asked, ChatModel
from turnledger.server import logs
from turnledger.server.admission import Principal
from turnledger.server.answer import Answer
from turnledger.server.body import read_body
from turnledger.server.chat_request import ChatRequest, chat_request
from turnledger.server.conversing import Conversing
from turnledger.server.errors import ClientGone, shutting_down
from turnledger.server.keeping import UNKEPT
from turnledger.server.outlet import Outlet, cut_of
from turnledger.server.passthrough import pass_through
from turnledger.server.service import Service


class ChatCompletions:
    """The endpoint, as a plain ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who: Principal = scope["state"]["principal"]
        place = self._service.quotas.turn(who.owner, is_tokenless=who.token is None)
        outlet = Outlet(send, receive, cut=cut_of(scope))
        answer = Answer(outlet, self._service.metrics)
        conversing: Conversing | None = None
        try:
            asked, model = await self._read(scope, receive)
            if await self._is_kept(asked, who):
                conversing = Conversing(self._service, scope["state"], asked, model, answer, place)
                await conversing.run()
            else:
                # No begin asks the store whether this one is still let in.
                await self._service.admission.admit(scope["state"]["head"])
                place.begin()
                if asked.has_conversation or asked.says_no:
                    answer.header(b"x-conversation-state", UNKEPT)
                question = Asked(asked.messages, asked.settings, asked.stream_options)
                await pass_through(question, model, answer, stream=asked.stream)
        except ClientGone:
            raise
        except TurnledgerError as problem:
            told = await self._told(scope["state"], problem)
            scope["state"]["code"] = told.code
            answer.fail(told)
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

    async def _is_kept(self, asked: ChatRequest, who: Principal) -> bool:
        keeping = self._service.keeping
        if keeping.keeps_all and not asked.says_no:
            return asked.has_conversation
        return await keeping.is_kept(asked, who.owner, who.within)

    async def _told(self, state: MutableMapping[str, Any], problem: TurnledgerError) -> TurnledgerError:
        """What a problem is told as: where no turn began, nobody has asked the store yet whether this one is
        still let in, and who is not learns nothing else."""
        if "turn" not in state:
            try:
                await self._service.admission.admit(state["head"])
            except TurnledgerError as refused:
                return refused
        return problem

    async def _read(self, scope: Scope, receive: Receive) -> tuple[ChatRequest, ChatModel]:
        limits = self._service.settings.limits
        body = await read_body(scope, receive, limit=limits.body_bytes, wait=limits.body_wait)
        asked = chat_request(scope["path"], scope["headers"], body)
        principal: Principal = scope["state"]["principal"]
        principal.check_chat_scope(asked.scope)
        model, name = self._service.models.find(asked.model, principal)
        self._service.models.check_fields(asked.settings, principal)
        if name != asked.model:
            asked = replace(asked, settings={**asked.settings, "model": name})
        return asked, model
