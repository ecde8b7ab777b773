"""The page over HTTP, for this machine alone: GET only, behind a random token, with a strict policy."""

from __future__ import annotations

import errno
import hmac
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oversharp.diagnostics.records.errors import ConfigError, OversharpError
from oversharp.diagnostics.viewer.page import MEDIA_TYPES, POLICY, page_files
from oversharp.diagnostics.viewer.records import ViewSelection, ViewStart
from oversharp.diagnostics.viewer.viewer import Viewer

ADDRESS = "127.0.0.1"
#: Names of this machine for itself. Another one is a page elsewhere whose name was made to lead here.
_HOSTS = (ADDRESS, "localhost")
_HEADERS = {
    "content-security-policy": f"{POLICY}; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class TokenGate:
    """Lets GET requests through whose path begins with the token, and puts the policy on every answer."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; 405 for what is no GET, 403 without the token."""
        if scope["type"] != "http":
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._answering(scope)(scope, receive, sealed)

    def _answering(self, scope: Scope) -> ASGIApp:
        """What refuses the request, or the application."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("view only reads: GET", 405, {"allow": "GET, HEAD"})
        given = scope["path"].encode("utf-8", "replace").removeprefix(b"/").partition(b"/")[0]
        if not hmac.compare_digest(given, self._token):
            return PlainTextResponse("open the address that oversharp view printed: it has a token in it", 403)
        if Headers(scope=scope).get("sec-fetch-site") == "cross-site" and "/api/" in scope["path"]:
            return PlainTextResponse("asked for by another site", 403)
        return self._app


def application(viewer: Viewer, start: ViewStart, token: str) -> Starlette:
    """The application; all of its addresses begin with ``/TOKEN/``."""
    files = page_files()

    def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            return PlainTextResponse("no such page", 404)
        return Response(files[name], media_type=MEDIA_TYPES[name])

    questions: dict[str, Callable[[ViewSelection, Any], Any]] = {
        "problems": lambda asked, given: viewer.problems(asked),
        "problem": lambda asked, given: viewer.problem(asked, given.get("problem", "")),
        "response": lambda asked, given: viewer.response(
            asked, given.get("problem", ""), given.get("at", ""), given.get("response", "")
        ),
        "search": lambda asked, given: viewer.search(asked, _number(given.get("start", "0"))),
    }

    def api(request: Request) -> Response:
        given, name = request.query_params, request.path_params["name"]
        if name == "start":
            return _json(start)
        if name not in questions:
            return PlainTextResponse("no such question", 404)
        try:
            asked = viewer.selection(given.get("series", ""), given.get("a"), given.get("b"))
            asked = replace(asked, search=given.get("q", ""))
            return _json(questions[name](asked, given))
        except OversharpError as error:
            return _json({"error": str(error)}, 400)

    base = f"/{token}"
    return Starlette(
        routes=[Route(f"{base}/", file), Route(f"{base}/api/{{name}}", api), Route(f"{base}/{{name}}", file)],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS), www_redirect=False),
            Middleware(TokenGate, token=token),
        ],
    )


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(f"start {text[:20]!r}: must be a whole number")
    return int(text)


def _json(answer: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def listening(port: int) -> socket.socket:
    """A socket of this machine alone, at a free port where ``port`` is 0. Raises ``ConfigError`` where it is taken."""
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"--port {port}: must be between 1 and 65535, or 0 for a free one")
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((ADDRESS, port))
        opened.listen()
    except OSError as error:
        opened.close()
        why = "in use by another program" if error.errno == errno.EADDRINUSE else error.strerror
        raise ConfigError(f"--port {port}: {why}; name another, or leave it out for a free one") from error
    return opened


def server_of(app: Starlette) -> uvicorn.Server:
    """A server that says nothing and ends at once when it is stopped."""
    settings = uvicorn.Config(
        app, loop="asyncio", http="h11", ws="none", lifespan="off", log_level="error", access_log=False,
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    return uvicorn.Server(settings)
