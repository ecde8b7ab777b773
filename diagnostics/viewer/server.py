"""Serve the page over HTTP on localhost: GET only, with a token and a content security policy."""

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
#: Allowed Host headers. Any other host is a DNS rebinding attack.
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
    """ASGI middleware that accepts only GET requests whose path begins with the token.

    It adds the content security policy to every response.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request: 405 unless it is a GET, 403 without the token."""
        if scope["type"] != "http":
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._choose_app(scope)(scope, receive, send_with_policy)

    def _choose_app(self, scope: Scope) -> ASGIApp:
        """Return the application, or a response that rejects the request."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("oversharp view is read-only: use GET", 405, {"allow": "GET, HEAD"})
        token = scope["path"].encode("utf-8", "replace").removeprefix(b"/").partition(b"/")[0]
        if not hmac.compare_digest(token, self._token):
            return PlainTextResponse("token missing or wrong; open the address that oversharp view printed", 403)
        if Headers(scope=scope).get("sec-fetch-site") == "cross-site" and "/api/" in scope["path"]:
            return PlainTextResponse("cross-site request refused", 403)
        return self._app


def create_app(viewer: Viewer, start: ViewStart, token: str) -> Starlette:
    """Return the application. All its paths begin with ``/TOKEN/``."""
    files = page_files()

    def serve_file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            return PlainTextResponse("no such page", 404)
        return Response(files[name], media_type=MEDIA_TYPES[name])

    handlers: dict[str, Callable[[ViewSelection, Any], Any]] = {
        "problems": lambda selection, params: viewer.problems(selection),
        "problem": lambda selection, params: viewer.problem(selection, params.get("problem", "")),
        "response": lambda selection, params: viewer.response(
            selection, params.get("problem", ""), params.get("at", ""), params.get("response", "")
        ),
        "turns": lambda selection, params: viewer.turns(
            selection,
            params.get("problem", ""),
            params.get("at", ""),
            params.get("response", ""),
            _parse_start(params.get("start", "")),
        ),
        "search": lambda selection, params: viewer.search(selection, _parse_start(params.get("start", "0"))),
    }

    def serve_api(request: Request) -> Response:
        params, name = request.query_params, request.path_params["name"]
        if name == "start":
            return _json_response(start)
        if name not in handlers:
            return PlainTextResponse("no such API call", 404)
        try:
            selection = viewer.selection(params.get("series", ""), params.get("a"), params.get("b"))
            selection = replace(selection, search=params.get("q", ""))
            return _json_response(handlers[name](selection, params))
        except OversharpError as error:
            return _json_response({"error": str(error)}, 400)

    base = f"/{token}"
    return Starlette(
        routes=[
            Route(f"{base}/", serve_file),
            Route(f"{base}/api/{{name}}", serve_api),
            Route(f"{base}/{{name}}", serve_file),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS), www_redirect=False),
            Middleware(TokenGate, token=token),
        ],
    )


def _parse_start(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(f"start {text[:20]!r}: must be a whole number")
    return int(text)


def _json_response(answer: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def listen(port: int) -> socket.socket:
    """Return a socket that listens on localhost. ``port`` 0 picks a free port.

    Raises ``ConfigError`` if the port cannot be used.
    """
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"--port {port}: must be between 1 and 65535, or 0 for a free one")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen()
    except OSError as error:
        listener.close()
        why = "in use by another program" if error.errno == errno.EADDRINUSE else error.strerror
        raise ConfigError(f"--port {port}: {why}; choose another, or omit --port for a free one") from error
    return listener


def create_server(app: Starlette) -> uvicorn.Server:
    """Return a server that logs only errors and stops immediately."""
    settings = uvicorn.Config(
        app, loop="asyncio", http="h11", ws="none", lifespan="off", log_level="error", access_log=False,
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    return uvicorn.Server(settings)
