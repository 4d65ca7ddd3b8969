"""Logs: JSON in production, readable text in a terminal.

Log lines contain the ids of runs and tool calls, but no payloads. `get_logger` writes through the
logging module of the standard library. In another program, log lines therefore follow the
configuration of that program. Tracer's own programs call `configure_logs`.
"""

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO
from uuid import UUID

import orjson
import structlog
from structlog.stdlib import BoundLogger

from tracer.errors import TracerError

EventDict = MutableMapping[str, Any]

# fmt: off
PAYLOAD_FIELDS = frozenset({
    "api_key", "arguments", "authorization", "content", "error_message", "input", "messages",
    "output", "password", "prompt", "request", "result", "summary", "thought", "token",
    "user_request",
})
# fmt: on
"""Fields whose values are never logged, in case one is passed by mistake."""

SAFE_ERRORS = (TracerError, OSError, ImportError)
"""Errors whose messages may be logged, because they come from Tracer, Python or the operating
system. Messages of other errors may quote a payload."""

# fmt: off
QUIET_LOGGERS = (
    "alembic", "client", "httpcore2", "httpx2", "mcp", "openai", "uvicorn.access", "uvicorn.error",
)
# fmt: on
"""Libraries that log too much at INFO, such as each migration or each request."""

_lineage_ids: ContextVar[Mapping[str, str] | None] = ContextVar("tracer_lineage", default=None)
_request_ids: ContextVar[dict[str, str] | None] = ContextVar("tracer_request", default=None)


def get_logger(name: str) -> BoundLogger:
    """Return the logger of a module.

    Args:
        name: The module's `__name__`.
    """
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            _merge_ids,
            _withhold_payloads,
            _to_standard_library,
        ],
    ).bind()  # bound once: binding it for each line would double the cost of a line
    return logger


@contextmanager
def lineage_bound(**ids: UUID | str | None) -> Iterator[None]:
    """Add ids, such as `root_plan_id` and `tool_call_id`, to every log line inside the block.

    The ids are stored in a context variable. Tasks and threads that copy the context inherit them.
    """
    present = {name: str(value) for name, value in ids.items() if value}
    token = _lineage_ids.set({**(_lineage_ids.get() or {}), **present})
    try:
        yield
    finally:
        _lineage_ids.reset(token)


@contextmanager
def request_bound(request_id: str) -> Iterator[None]:
    """Add the id of an HTTP request to every log line inside the block.

    Ids that `bind_request_ids` adds during the request are included, too.
    """
    token = _request_ids.set({"request_id": request_id})
    try:
        yield
    finally:
        _request_ids.reset(token)


def bind_request_ids(**ids: UUID | None) -> None:
    """Add ids to all later log lines of the current request. None removes an id."""
    bound_ids = _request_ids.get()
    if bound_ids is not None:
        for name, value in ids.items():
            if value is None:
                bound_ids.pop(name, None)
            else:
                bound_ids[name] = str(value)


def configure_logs(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Configure the logging of this process, including libraries and uvicorn.

    Start uvicorn with `log_config=None`, because it otherwise installs its own handlers.

    Args:
        level: The lowest level that is written.
        stream: The output; standard error by default. If it is a terminal, lines are readable text,
            with a short form for requests. Otherwise, each line is a JSON object.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines(_for_terminal(_has_colors()) if stream.isatty() else _json))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Not shown, so they need not be determined for each line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # no line numbers; see the HOWTO of `logging`


class _Lines(logging.Formatter):
    """Formats the log lines of this package and of libraries in the same way."""

    def __init__(self, rendered: Callable[[EventDict], str]) -> None:
        super().__init__()
        self._rendered = rendered

    def format(self, record: logging.LogRecord) -> str:
        name = getattr(record, "named", None)
        if name is None:
            name = record.getMessage()
        event: EventDict = {"event": name, **getattr(record, "fields", {})}
        event["logger"] = record.name
        event["level"] = record.levelname.lower()
        moment = datetime.fromtimestamp(record.created, UTC)
        event["timestamp"] = moment.isoformat().replace("+00:00", "Z")
        if record.stack_info:
            event["stack_info"] = record.stack_info
        if record.exc_info and record.exc_info[1] is not None:
            event["exception"] = "\n".join(_describe(record.exc_info[1]))
        return self._rendered(event)


def _has_colors() -> bool:
    """Return whether the terminal supports colors and the user allows them.

    The user forbids colors with the variable `NO_COLOR` (https://no-color.org).
    """
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_PARAMETER = re.compile(r"{(\w+)}")
_STATUS_COLORS = {2: "\x1b[32m", 3: "\x1b[36m", 4: "\x1b[33m", 5: "\x1b[31m"}
_DIM, _RESET = "\x1b[2m", "\x1b[0m"


def _for_terminal(has_colors: bool) -> Callable[[EventDict], str]:
    """Return a formatter for terminals. Times are local times."""
    console = structlog.dev.ConsoleRenderer(colors=has_colors, sort_keys=False, pad_event_to=0)

    def colored(text: str, color: str) -> str:
        return f"{color}{text}{_RESET}" if has_colors and color else text

    def rendered(event: EventDict) -> str:
        moment = datetime.fromisoformat(event["timestamp"]).astimezone()
        event["timestamp"] = f"{moment:%H:%M:%S}"
        if event["event"] != "request" or "route" not in event:
            return str(console(None, "", event))
        status = event["status"]
        parts = [
            colored(event["timestamp"], _DIM),
            event["method"],
            _PARAMETER.sub(lambda match: _parameter(match, event), event["route"]),
            colored(str(status or "-"), _STATUS_COLORS.get(status // 100, "")),
            colored(f"{event['duration_ms']} ms", _DIM),
        ]
        if "code" in event:
            parts.append(event["code"])
        return " ".join(parts)

    return rendered


def _parameter(match: re.Match[str], event: EventDict) -> str:
    """Return the value of a path parameter if the log line contains it; otherwise its name.

    A log line contains a value only if it is a valid id. It never contains the path itself, because
    clients may write anything into a path.
    """
    name = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", match[1])
    return str(event.get(name, match[0]))


def _json(event: EventDict) -> str:
    """Return a log line as JSON in ASCII, which every stream can encode."""
    try:
        line = orjson.dumps(event, default=str)
    except TypeError:
        # An integer above 64 bits, a lone surrogate, a key that is not text, or a cycle.
        return json.dumps({name: str(value) for name, value in event.items()})
    return line.decode() if line.isascii() else json.dumps(orjson.loads(line))


def _merge_ids(_logger: object, _method: str, event: EventDict) -> EventDict:
    for ids in (_lineage_ids.get(), _request_ids.get()):
        for name, value in (ids or {}).items():
            event.setdefault(name, value)
    return event


def _withhold_payloads(_logger: object, _method: str, event: EventDict) -> EventDict:
    for field in PAYLOAD_FIELDS & event.keys():
        event[field] = "(withheld)"
    return event


def _to_standard_library(
    _logger: object, _method: str, event: EventDict
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    name, exc_info = event.pop("event"), event.pop("exc_info", None)
    # In other programs, a line shows only its message, so that must contain the fields. Our own
    # formatter uses `named` and `fields`, and never builds the message.
    words = " ".join(["%s", *(f"{field}=%a" for field in event)])
    # One attribute for all fields, because their names could collide with those of the record.
    extra = {"named": name, "fields": event}
    return (words, name, *event.values()), {"exc_info": exc_info, "extra": extra}


def _describe(error: BaseException) -> list[str]:
    """Return lines that show where an error and its causes were raised.

    The message of an error is omitted, unless its class is one of `SAFE_ERRORS`.
    """
    lines = [line.rstrip("\n") for line in traceback.format_tb(error.__traceback__)]
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    lines.append(f"{kind}: {error}" if isinstance(error, SAFE_ERRORS) else kind)
    below = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for other in [*below, *([cause] if cause else [])]:
        lines += ["Because of:" if other is cause else "Among them:", *_describe(other)]
    return lines
