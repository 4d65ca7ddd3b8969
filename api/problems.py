"""The facts about one request for its line in the log and for the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from tracer import errors
from tracer.logs import get_logger

ENTRY = "tracer.log_entry"
"""The key of an ASGI scope that holds the request's `LogEntry`."""


@dataclass(slots=True)
class LogEntry:
    """The facts about a request. They are collected while the server answers the request."""

    request_id: str
    status: int = 0
    """The HTTP status; 0 before the response starts."""
    received: int = 0
    sent: int = 0
    is_stream: bool = False
    problem: str | None = None
    """The error code of the response; None for a success."""


def log_entry(scope: Scope) -> LogEntry | None:
    """Return the log entry of a request; None if the middleware `RequestLog` is not installed."""
    entry = scope.get(ENTRY)
    return entry if isinstance(entry, LogEntry) else None


def note_problem(scope: Scope, code: str) -> None:
    """Add the error code of a response to the request's log entry."""
    entry = log_entry(scope)
    if entry is not None:
        entry.problem = code


# --- Answer errors with RFC 9457 problem details: errors of Tracer, FastAPI and Starlette.

log = get_logger(__name__)

MEDIA_TYPE = "application/problem+json"

PROBLEMS: Mapping[type[errors.TracerError], tuple[HTTPStatus, str]] = {
    errors.RecordNotFound: (HTTPStatus.NOT_FOUND, "not_found"),
    errors.AmbiguousReference: (HTTPStatus.CONFLICT, "ambiguous_reference"),
    errors.BadCursor: (HTTPStatus.BAD_REQUEST, "bad_cursor"),
    errors.TooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"),
    errors.TooManySecrets: (HTTPStatus.UNPROCESSABLE_ENTITY, "too_many_secrets"),
    errors.UnknownFormat: (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unknown_format"),
    errors.BadRequest: (HTTPStatus.BAD_REQUEST, "bad_request"),
    errors.NotIdentified: (HTTPStatus.UNAUTHORIZED, "not_identified"),
    errors.NotAllowed: (HTTPStatus.FORBIDDEN, "not_allowed"),
    errors.UnknownHost: (HTTPStatus.MISDIRECTED_REQUEST, "unknown_host"),
    errors.RunNotActive: (HTTPStatus.CONFLICT, "run_not_active"),
    errors.NoApplication: (HTTPStatus.CONFLICT, "no_application"),
    errors.ApplicationUnavailable: (
        HTTPStatus.SERVICE_UNAVAILABLE,
        "application_unavailable",
    ),
    errors.SearchOff: (HTTPStatus.CONFLICT, "search_off"),
    errors.TooBusy: (HTTPStatus.SERVICE_UNAVAILABLE, "too_busy"),
    errors.StoreUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "store_unavailable"),
    errors.SchemaOutOfDate: (HTTPStatus.SERVICE_UNAVAILABLE, "schema_out_of_date"),
    errors.UnreadableData: (HTTPStatus.INTERNAL_SERVER_ERROR, "unreadable_data"),
    errors.ConfigurationError: (HTTPStatus.SERVICE_UNAVAILABLE, "not_configured"),
    errors.TracerError: (HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error"),
}
"""The HTTP status and the stable code of each error. If an error's class has no entry, the entry of
its base class applies."""


class Problem(BaseModel):
    """An error as RFC 9457 problem details."""

    model_config = ConfigDict(
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Not Found",
                    "status": 404,
                    "code": "not_found",
                    "detail": "There is no run with the id '…' in this project.",
                }
            ]
        },
    )

    type: str = "about:blank"
    title: str
    """The HTTP status as text."""
    status: int
    code: str
    """A stable code for programs."""
    detail: str
    """What went wrong and what to do about it, as a text for people."""
    errors: list[dict[str, Any]] | None = None
    """Only for `invalid_request`: the errors, each with its path in the request (`loc`) and a
    message (`msg`)."""


def problem_response(
    status: HTTPStatus,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, Any]] | None = None,
) -> Response:
    """Return a response that carries problem details."""
    problem = Problem(
        title=status.phrase, status=status.value, code=code, detail=detail, errors=errors
    )
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        status_code=status.value,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def problem_of(error: errors.TracerError) -> tuple[HTTPStatus, str]:
    """Return the HTTP status and the stable code of an error."""
    return next(PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)


def error_response(scope: Scope, error: errors.TracerError) -> Response:
    """Return the response for one of Tracer's own errors.

    Args:
        scope: The ASGI scope of the request.
        error: The error.
    """
    status, code = problem_of(error)
    note_problem(scope, code)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("request_failed", code=code, error=str(error))
    headers: dict[str, str] = {}
    if isinstance(error, errors.RecordNotFound) and error.run_path is not None:
        headers["Link"] = f'<{error.run_path}>; rel="up"'
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="tracer"'
    return problem_response(status, code, str(error), headers)


def log_crash(request_id: str, error: Exception) -> str:
    """Log an unexpected error. Return the text for the client."""
    log.error("request_crashed", request_id=request_id, exc_info=error)
    return "The server failed. Its log has the error under this request's id."


def documented(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of an endpoint's error responses with these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status.value: {"description": status.phrase, "content": content} for status in statuses}


COMMON_PROBLEMS = documented(
    HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE
)
"""The OpenAPI entries of the errors that every route of the API may return."""


def install(app: FastAPI, routes: Iterable[BaseRoute]) -> None:
    """Make `app` answer every error with problem details.

    Args:
        app: The application.
        routes: The routes of the application. A 405 response lists their methods in `Allow`.
    """
    known = tuple(each for each in routes if isinstance(each, Route))

    async def tracer_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.TracerError)
        return error_response(request.scope, error)

    async def invalid_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        # Without `input` and `ctx`, because an error must not echo the request's values.
        found = [
            {"loc": [str(part) for part in each["loc"]], "msg": each["msg"], "type": each["type"]}
            for each in error.errors()
        ]
        first = found[0]
        where = ".".join(first["loc"])
        detail = f"{where}: {first['msg']}. Correct it and send the request again."
        note_problem(request.scope, "invalid_request")
        return problem_response(
            HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail, errors=found
        )

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        code = status.phrase.lower().replace(" ", "_").replace("-", "_")
        detail, headers = str(error.detail), dict(error.headers or {})
        if status is HTTPStatus.NOT_FOUND:
            detail = "There is no resource at this path. /openapi.json lists all paths."
        elif status is HTTPStatus.METHOD_NOT_ALLOWED:
            if allowed := ", ".join(_methods_of(request.scope["path"], known)):
                headers["Allow"] = allowed
            allowed = headers.get("Allow", "another method")
            detail = f"This path does not support {request.method}. Use {allowed}."
        note_problem(request.scope, code)
        return problem_response(status, code, detail, headers)

    async def unexpected(request: Request, error: Exception) -> Response:
        # The request log is further in: it has seen the error, and cannot add headers any more.
        entry = log_entry(request.scope)
        request_id = "" if entry is None else entry.request_id
        detail = log_crash(request_id, error)
        headers = {"X-Request-Id": request_id}
        return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", detail, headers)

    app.add_exception_handler(errors.TracerError, tracer_error)
    app.add_exception_handler(RequestValidationError, invalid_request)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected)


def _methods_of(path: str, routes: Iterable[Route]) -> list[str]:
    """Return the methods of all routes with the path template that matches `path`.

    FastAPI's 405 error lists only the methods of the first route.
    """
    matching = [each for each in routes if each.path_regex.match(path)]
    of_path = (each.methods or () for each in matching if each.path == matching[0].path)
    return sorted({method for methods in of_path for method in methods})
