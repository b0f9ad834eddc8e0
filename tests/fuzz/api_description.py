"""The API description in schemathesis: generated requests, and checks of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import requests
import schemathesis
from schemathesis import GenerationMode
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.fuzz.application import Application
from tests.unit.server.asgi import Reply
from turnledger.server.openapi.document import describe
from turnledger.server.openapi.endpoint import Endpoint

URL = "http://localhost"
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
Case = schemathesis.Case


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(_: Any, value: Any) -> bytes:
    """Encode an import file, whatever its content."""
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str) + b"\n"


Operation = schemathesis.APIOperation


class ApiDescription:
    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        document = msgspec.json.decode(msgspec.json.encode(describe(endpoints)))
        self.schema = schemathesis.openapi.from_dict(document)
        self.operations: dict[str, Operation] = {
            found.ok().label: found.ok() for found in self.schema.get_all_operations()
        }

    def coverage(self, operation: Operation, mode: GenerationMode) -> list[Case]:
        """Return cases at the boundaries of the description, inside or outside."""
        config = self.schema.config.generation_for(operation=operation)
        return list(
            self.schema.iter_coverage_cases(operation, generation_modes=[mode], generation_config=config)
        )

    def fetch(self, application: Application, case: Case, headers: dict[str, str]) -> Response:
        """Send a case and check the answer."""
        sent = requests.Request(**case.as_transport_kwargs(base_url=URL, headers=headers)).prepare()
        reply = _send(application, sent)
        shown = _shown(reply, sent)
        case.validate_response(shown, checks=CHECKS)
        return shown

    def check(self, label: str, reply: Reply) -> None:
        """Check an answer against the description of its operation."""
        operation = self.operations[label]
        documented = operation.definition.raw["responses"]
        assert str(reply.status) in documented, f"{label}: {reply.summary}"
        sent = requests.Request(operation.method, URL + operation.path).prepare()
        operation.validate_response(_shown(reply, sent))


def _send(application: Application, sent: requests.PreparedRequest) -> Reply:
    where = urlsplit(str(sent.url))
    headers = [(b"host", b"localhost")]
    headers += [(_bytes(name).lower(), _bytes(value)) for name, value in sent.headers.items()]
    body = _bytes(sent.body or b"")
    path = unquote(where.path, errors="replace")  # as the server does
    return application.fetch(str(sent.method), path, headers, body, where.query.encode())


def _shown(reply: Reply, sent: requests.PreparedRequest) -> Response:
    return Response(
        status_code=reply.status,
        headers=_listed(reply),
        content=reply.body,
        request=sent,
        elapsed=0,
        verify=True,
    )


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("latin-1", "replace")


def _listed(reply: Reply) -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for name, value in reply.headers:
        listed.setdefault(name.decode(), []).append(value.decode("latin-1"))
    return listed
