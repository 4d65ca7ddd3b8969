"""Serve the viewer, a built Vue application."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tracer.logs import get_logger

log = get_logger(__name__)

BUILT = Path(__file__).parent / "static"
"""The folder of the viewer's build (`web/vite.config.ts`)."""

PAGES = (
    "/",
    "/runs",
    "/runs/{root_plan_id}",
    "/sessions",
    "/sessions/{session_id:path}",
    "/plans/{plan_id}",
    "/tool-calls/{tool_call_id}",
    "/tools",
    "/go/{reference}",
    "/compare/{left}",
    "/compare/{left}/{right}",
    "/sign-in",
    "/keys",
)
"""The paths of the viewer's pages. The server answers each with the same HTML file."""

FILES = tuple(
    "favicon.svg favicon-running.svg favicon-failed.svg first-answers.js appearance.js".split()
)
"""The files that are served next to the page under their own names (`web/public`)."""

HEADERS = {
    # The page may load from this server only: no CDN, nothing inline, no frame around it, no form,
    # no plug-in, and no requests to other addresses.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "media-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The page names its assets by hash, so only the page itself must be revalidated.
    "Cache-Control": "no-cache",
}

FOR_EVER = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of files that never change, because their names contain a hash of their content."""

MISSING = (
    "<!doctype html><title>Tracer</title>"
    "<p>The viewer is not built. Run <code>make setup</code>.</p>"
)


def mount(app: FastAPI, built: Path = BUILT) -> None:
    """Serve the viewer's page and files.

    Args:
        app: The application. Call this after its API routes are added.
        built: The folder with the built viewer. Without one, the page shows how to build it.
    """

    async def page(_: Request) -> Response:
        return html_page(built)

    for path in PAGES:
        app.add_route(path, page, methods=["GET"], include_in_schema=False)

    async def file(request: Request) -> Response:
        return _file(built / request.url.path.removeprefix("/"), HEADERS)

    for name in FILES:
        app.add_route(f"/{name}", file, methods=["GET"], include_in_schema=False)

    async def asset(request: Request) -> Response:
        return _asset(built / "assets", request.path_params["name"], request.headers)

    app.add_route("/assets/{name}", asset, methods=["GET"], include_in_schema=False)


def html_page(built: Path = BUILT, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return the file that is the page of each path; without it, how to build it."""
    index = built / "index.html"
    if not index.is_file():
        log.warning("viewer_not_built", expected=str(index))
        return HTMLResponse(MISSING, status, HEADERS)
    return HTMLResponse(index.read_bytes(), status, HEADERS)


def is_of_the_viewer(path: str) -> bool:
    """Return whether a path is a page or file of the viewer. Such files contain no project data."""
    return (
        path.startswith("/assets/")
        or path.removeprefix("/") in FILES
        # Starlette redirects to the path without the slash.
        or _PAGE.fullmatch(path.rstrip("/") or "/") is not None
    )


_PAGE = re.compile("|".join(re.sub("{[^}]*}", "[^/]+", page) for page in PAGES))


def _asset(folder: Path, name: str, asked: Headers) -> Response:
    """Return a file that the build has given a name for ever, packed if the client accepts gzip."""
    if "gzip" in asked.get("accept-encoding", ""):
        with suppress(HTTPException):
            return _file(folder / f"{name}.gz", {**FOR_EVER, "Content-Encoding": "gzip"})
    return _file(folder / name, FOR_EVER)


def _file(path: Path, headers: Mapping[str, str]) -> Response:
    """Return a file of the viewer.

    It is read here, and not in a thread as by `FileResponse`: the files are small and in the page
    cache, and a page needs ten of them, each of which would take four changes of threads.

    Raises:
        HTTPException: There is no such file (404).
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError):  # a name may also be too long, or contain a zero byte
        raise HTTPException(HTTPStatus.NOT_FOUND) from None
    media_type, _ = guess_type(path.name.removesuffix(".gz"))
    return Response(content, headers=headers, media_type=media_type)
