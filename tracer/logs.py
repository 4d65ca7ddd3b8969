"""Logs: JSON in production, readable in a terminal, lineage ids on every line, never payloads.

`get_logger` writes through the standard library's logging, so that inside somebody else's agent
our lines obey that program's configuration. `configure_logs` is for programs of our own.
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
"""Fields whose values are withheld, should anybody log one by mistake."""

SPEAKING_ERRORS = (TracerError, OSError, ImportError)
"""Errors whose text is ours or the system's. Any other text may quote a payload."""

# fmt: off
QUIET_LOGGERS = (
    "alembic", "client", "httpcore2", "httpx2", "mcp", "openai", "uvicorn.access", "uvicorn.error",
)
# fmt: on
"""Libraries that say too much: each migration context, whole requests, or that they start."""

_of_lineage: ContextVar[Mapping[str, str] | None] = ContextVar("tracer_lineage", default=None)
_of_request: ContextVar[dict[str, str] | None] = ContextVar("tracer_request", default=None)


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
    ).bind()  # here and now: making it anew for each line costs as much as the line
    return logger


@contextmanager
def lineage_bound(**ids: UUID | str | None) -> Iterator[None]:
    """Put ids, such as `root_plan_id` and `tool_call_id`, on every line logged inside.

    They travel with the context: into tasks, `asyncio.to_thread`, and threads that copy it.
    """
    told = {name: str(value) for name, value in ids.items() if value}
    token = _of_lineage.set({**(_of_lineage.get() or {}), **told})
    try:
        yield
    finally:
        _of_lineage.reset(token)


@contextmanager
def request_bound(request_id: str) -> Iterator[None]:
    """Put a request's id on every line logged inside, and what `tell_lineage` says meanwhile."""
    token = _of_request.set({"request_id": request_id})
    try:
        yield
    finally:
        _of_request.reset(token)


def tell_lineage(**ids: UUID | None) -> None:
    """Put ids on what is logged for this request from here on; None takes one off again."""
    told = _of_request.get()
    if told is not None:
        for name, value in ids.items():
            if value is None:
                told.pop(name, None)
            else:
                told[name] = str(value)


def configure_logs(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send this process's logs, those of libraries and uvicorn included, through one pipeline.

    Start uvicorn with `log_config=None`, or it installs handlers of its own.

    Args:
        level: The least level that is written.
        stream: Where to write; standard error unless given. A terminal gets a short line for each
            request and readable lines, anything else a JSON object a line.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines(_for_terminal(_has_colors()) if stream.isatty() else _json))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    # What no line says need not be found out for each.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # the line of code; `logging`'s HOWTO names it so


class _Lines(logging.Formatter):
    """Writes what is logged here and in libraries in one way."""

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
    """Return whether a terminal has colours, and the user wants them (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_PARAMETER = re.compile(r"{(\w+)}")
_STATUS_COLORS = {2: "\x1b[32m", 3: "\x1b[36m", 4: "\x1b[33m", 5: "\x1b[31m"}
_DIM, _RESET = "\x1b[2m", "\x1b[0m"


def _for_terminal(has_colors: bool) -> Callable[[EventDict], str]:
    """Return a renderer for people, with local times."""
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
            _PARAMETER.sub(lambda found: _parameter(found, event), event["route"]),
            colored(str(status or "-"), _STATUS_COLORS.get(status // 100, "")),
            colored(f"{event['duration_ms']} ms", _DIM),
        ]
        if "code" in event:
            parts.append(event["code"])
        return " ".join(parts)

    return rendered


def _parameter(found: re.Match[str], event: EventDict) -> str:
    """Return the id in a path if it is in the log, else the parameter's name in braces.

    The log has ids that were valid, and never the path itself: a client may write anything in it.
    """
    name = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", found[1])
    return str(event.get(name, found[0]))


def _json(event: EventDict) -> str:
    """Write a line of ASCII alone, as a stream of any encoding takes it."""
    try:
        line = orjson.dumps(event, default=str)
    except TypeError:
        # More than 64 bits, half a pair of surrogates, a key that is no text, a circle: rather told
        # as text than not at all.
        return json.dumps({name: str(value) for name, value in event.items()})
    return line.decode() if line.isascii() else json.dumps(orjson.loads(line))


def _merge_ids(_logger: object, _method: str, event: EventDict) -> EventDict:
    for ids in (_of_lineage.get(), _of_request.get()):
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
    # In another's program a line is its message: without the fields it does not say what is wrong.
    # Our own lines are made of `named` and `fields`, and no message is put together for them.
    words = " ".join(["%s", *(f"{field}=%a" for field in event)])
    # All fields in one attribute: each in its own could collide with an attribute of the record.
    extra = {"named": name, "fields": event}
    return (words, name, *event.values()), {"exc_info": exc_info, "extra": extra}


def _describe(error: BaseException) -> list[str]:
    """Say where an error and its causes were raised, without what their texts may quote."""
    lines = [line.rstrip("\n") for line in traceback.format_tb(error.__traceback__)]
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    lines.append(f"{kind}: {error}" if isinstance(error, SPEAKING_ERRORS) else kind)
    below = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for other in [*below, *([cause] if cause else [])]:
        lines += ["Because of:" if other is cause else "Among them:", *_describe(other)]
    return lines
