"""/ and /share: the chat page, its files, and the frame in which it shows external images."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from turnledger.server.chat_page.built import POLICY, BuiltPage, PageFile, inline_page
from turnledger.server.errors import Refused
from turnledger.server.openapi.endpoint import Content, Endpoint, Parameter
from turnledger.server.openapi.schemas import NAME, TEXT
from turnledger.server.service import Service

PAGE_PATH, SHARE_PATH = "/", "/share"
FRESH = b"no-cache"
"""Cached by browsers, but revalidated each time."""
FOR_GOOD = b"public, max-age=31536000, immutable"
"""For files whose names change with their content."""
UNBUILT = inline_page("unbuilt")
PICTURE = inline_page("picture", "img-src http: https:", "sandbox allow-scripts")

_TAG = Parameter("The version of the file, for `If-None-Match`.", TEXT)
_CONDITION = {"If-None-Match": Parameter("Versions of it that one has.", TEXT)}
_NOT_CHANGED = "It has not changed."
_HTML: Content = {"text/html": TEXT}
_ANYTHING: Content = {"*/*": {}}


class PageRoutes:
    def __init__(self, page: BuiltPage) -> None:
        self._page = page

    async def index(self, request: Request) -> Response:
        if self._page.index is None:
            return HTMLResponse(UNBUILT.text)
        return given(self._page.index, request)

    async def icon(self, request: Request) -> Response:
        return given(self._page.icon, request)

    async def asset(self, request: Request) -> Response:
        return given(self._page.assets.get(request.path_params["name"]), request)

    async def picture(self, _: Request) -> Response:
        return HTMLResponse(PICTURE.text)


def given(file: PageFile | None, request: Request) -> Response:
    """Respond with the file, compressed if accepted, or 304. Raises Refused (404) if there is none."""
    if file is None:
        message = "The page has no such file. It may have been rebuilt; reload it."
        raise Refused(404, "unknown_url", message)
    packed = file.packed if takes_gzip(request.headers.get("accept-encoding", "")) else None
    tag = file.tag if packed is None else file.packed_tag
    headers = {"etag": tag, "vary": "accept-encoding"}
    if has_version(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    headers["content-type"] = file.kind
    if packed is None:
        return Response(file.content, headers=headers)
    return Response(packed, headers={**headers, "content-encoding": "gzip"})


def takes_gzip(accepted: str) -> bool:
    welcome = False
    for each in accepted.lower().split(","):
        coding, _, weight = (part.strip() for part in each.partition(";"))
        is_welcome = weight.replace(" ", "").rstrip("0.") != "q="
        if coding == "gzip":
            return is_welcome
        if coding == "*":
            welcome = is_welcome
    return welcome


def has_version(had: str, tag: str) -> bool:
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in had.split(","))


def endpoints(service: Service) -> list[Endpoint]:
    routes = PageRoutes(service.page)
    policy = UNBUILT.policy if service.page.index is None else POLICY
    return [
        *(_page(path, summary, routes, policy) for path, summary in PAGES.items()),
        _picture(routes),
        *_files(routes),
    ]


PAGES = {
    PAGE_PATH: "The chat page.",
    SHARE_PATH: "The chat page, for who follows a link: `/share#CODE`.",
}


def _page(path: str, summary: str, routes: PageRoutes, policy: bytes) -> Endpoint:
    return Endpoint(
        method="GET",
        path=path,
        answer=routes.index,
        is_public=True,
        summary=summary,
        tag="page",
        page_policy=policy,
        caching=FRESH,
        headers=_CONDITION,
        answer_headers={"ETag": _TAG},
        content={200: _HTML, 304: {}},
        answers={200: "The page; where it was not built, one that says so.", 304: _NOT_CHANGED},
    )


def _picture(routes: PageRoutes) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/picture",
        answer=routes.picture,
        is_public=True,
        summary="A frame of the chat page's that shows the image at `/picture#URL`, and can do nothing else.",
        tag="page",
        page_policy=PICTURE.policy,
        is_own_frame=True,
        content={200: _HTML},
        answers={200: "The frame."},
    )


def _files(routes: PageRoutes) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/assets/{name}",
            answer=routes.asset,
            is_public=True,
            summary="A file that the page is built of; its name changes with what is in it.",
            tag="page",
            caching=FOR_GOOD,
            in_path={"name": Parameter("Of the file.", NAME)},
            headers=_CONDITION,
            answer_headers={"ETag": _TAG},
            content={200: _ANYTHING, 304: {}},
            answers={200: "The file.", 304: _NOT_CHANGED, 404: "There is none."},
        ),
        Endpoint(
            method="GET",
            path="/favicon.svg",
            answer=routes.icon,
            is_public=True,
            summary="The icon of the page.",
            tag="page",
            caching=FRESH,
            headers=_CONDITION,
            answer_headers={"ETag": _TAG},
            content={200: {"image/svg+xml": TEXT}, 304: {}},
            answers={200: "The icon.", 304: _NOT_CHANGED, 404: "There is none."},
        ),
    ]
