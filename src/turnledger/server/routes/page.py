"""/ and /share: the chat page, its files, and the frame in which it shows external images."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from turnledger.api.access import SHARE_PATH
from turnledger.server.chat_page.files import OFFLINE_POLICY, POLICY, PageFile, inline_page
from turnledger.server.errors import RequestRefused
from turnledger.server.openapi.endpoint import Content, Endpoint, Parameter
from turnledger.server.openapi.schemas import NAME, STRING
from turnledger.server.service import Service

PAGE_PATH = "/"
REVALIDATED = b"no-cache"
"""Cached by browsers, but revalidated each time."""
IMMUTABLE = b"public, max-age=31536000, immutable"
"""For files whose names change with their content."""
UNBUILT_PAGE = inline_page("unbuilt")
PICTURE_PAGE = inline_page("picture", "img-src http: https:", "sandbox allow-scripts")

_TAG = Parameter("The version of the file, for `If-None-Match`.", STRING)
_CONDITION = {"If-None-Match": Parameter("Versions that the client has.", STRING)}
_NOT_MODIFIED = "Not modified."
_HTML: Content = {"text/html": STRING}
_ANYTHING: Content = {"*/*": {}}


def file_response(file: PageFile | None, request: Request) -> Response:
    """Respond with the file, compressed if accepted, or 304. Raises RequestRefused (404) if there is none."""
    if file is None:
        message = "The page has no such file. It may have been rebuilt; reload it."
        raise RequestRefused(404, "unknown_url", message)
    packed = file.packed if accepts_gzip(request.headers.get("accept-encoding", "")) else None
    tag = file.tag if packed is None else file.packed_tag
    headers = {"etag": tag, "vary": "accept-encoding"}
    if has_version(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    headers["content-type"] = file.kind
    if packed is None:
        return Response(file.content, headers=headers)
    return Response(packed, headers={**headers, "content-encoding": "gzip"})


def accepts_gzip(accepted: str) -> bool:
    is_accepted = False
    for each in accepted.lower().split(","):
        coding, _, weight = (part.strip() for part in each.partition(";"))
        is_allowed = weight.replace(" ", "").rstrip("0.") != "q="
        if coding == "gzip":
            return is_allowed
        if coding == "*":
            is_accepted = is_allowed
    return is_accepted


def has_version(if_none_match: str, tag: str) -> bool:
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in if_none_match.split(","))


def endpoints(service: Service) -> list[Endpoint]:
    page = service.page
    policy = UNBUILT_PAGE.policy if page.index is None else POLICY

    async def index(request: Request) -> Response:
        return HTMLResponse(UNBUILT_PAGE.text) if page.index is None else file_response(page.index, request)

    async def icon(request: Request) -> Response:
        return file_response(page.icon, request)

    async def offline(request: Request) -> Response:
        return file_response(page.offline, request)

    async def asset(request: Request) -> Response:
        return file_response(page.assets.get(request.path_params["name"]), request)

    async def picture(_: Request) -> Response:
        return HTMLResponse(PICTURE_PAGE.text)

    return [
        *(
            Endpoint(
                route=f"GET {path}",
                handler=index,
                is_public=True,
                summary=summary,
                page_policy=policy,
                cache_control=REVALIDATED,
                headers=_CONDITION,
                response_headers={"ETag": _TAG},
                content={200: _HTML, 304: {}},
                responses={200: "The page, or a note that it was not built.", 304: _NOT_MODIFIED},
            )
            for path, summary in PAGES.items()
        ),
        Endpoint(
            route="GET /picture",
            handler=picture,
            is_public=True,
            summary="A sandboxed frame in which the chat page shows the image at `/picture#URL`.",
            page_policy=PICTURE_PAGE.policy,
            is_own_frame=True,
            content={200: _HTML},
            responses={200: "The frame."},
        ),
        Endpoint(
            route="GET /assets/{name}",
            handler=asset,
            is_public=True,
            summary="A file of the page; its name changes with its content.",
            cache_control=IMMUTABLE,
            in_path={"name": Parameter("The name of the file.", NAME)},
            headers=_CONDITION,
            response_headers={"ETag": _TAG},
            content={200: _ANYTHING, 304: {}},
            responses={200: "The file.", 304: _NOT_MODIFIED, 404: "File not found."},
        ),
        Endpoint(
            route="GET /favicon.svg",
            handler=icon,
            is_public=True,
            summary="The icon of the page.",
            cache_control=REVALIDATED,
            headers=_CONDITION,
            response_headers={"ETag": _TAG},
            content={200: {"image/svg+xml": STRING}, 304: {}},
            responses={200: "The icon.", 304: _NOT_MODIFIED, 404: "File not found."},
        ),
        Endpoint(
            route="GET /service-worker.js",
            handler=offline,
            is_public=True,
            summary="The service worker of the page, which shows a page of its own when the server is down.",
            page_policy=OFFLINE_POLICY,
            cache_control=REVALIDATED,
            headers=_CONDITION,
            response_headers={"ETag": _TAG},
            content={200: {"text/javascript": STRING}, 304: {}},
            responses={200: "The script.", 304: _NOT_MODIFIED, 404: "File not found."},
        ),
    ]


PAGES = {
    PAGE_PATH: "The chat page.",
    SHARE_PATH: "The chat page for visitors with a share link: `/share#CODE`.",
}
