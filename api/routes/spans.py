"""The route that lists the OpenTelemetry spans and log records of a run, as received."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from api.dependencies import Fresh, Reader, Reading, SpanIndexDep
from api.freshness import SpanIndex, SpanOrder
from api.problems import documented
from api.requests import CursorText, PageSize, RootPlanId
from api.schemas import STEP_ID, PageSchema, read_config
from tracer.errors import BadCursor
from tracer.otel.otlp.spans import moment, stored
from tracer.records import Kind
from tracer.records.record_classes import RecordReference
from tracer.records.spans import SPAN_ID_BYTES, LogRecord, Span

# --- Schemas of spans and log records.

_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUSES = ("unset", "ok", "error")
_EXACT = 2**53
"""Larger integers are not exact in JavaScript, so they are written as text."""

AttributesJson = dict[str, Any]
"""Attributes as JSON. Bytes are encoded as base64. Integers from 2^53 on, NaN and infinities are
encoded as text."""


class SpanRecord(BaseModel):
    """The record that a span belongs to."""

    model_config = read_config(kind="step", id=STEP_ID)

    kind: Kind
    id: UUID


class SpanEventSchema(BaseModel):
    """An event at a moment within a span."""

    model_config = read_config()

    name: str
    at: datetime | None
    time_unix_nano: str
    attributes: AttributesJson


class SpanLinkSchema(BaseModel):
    """A reference to another span."""

    model_config = read_config()

    trace_id: str
    span_id: str
    attributes: AttributesJson


class SpanSchema(BaseModel):
    """A span as received. `docs/reference/protocol.md` explains escaped characters in texts."""

    model_config = read_config(
        spanId="eee19b7ec3c1b174",
        parentSpanId=None,
        name="invoke_agent planner",
        kind="internal",
        startedAt="2026-11-21T22:21:52.462812Z",
        finishedAt="2026-11-21T22:21:53.462812Z",
        startTimeUnixNano="1795299712462812345",
        endTimeUnixNano="1795299713462812345",
        statusCode="unset",
        statusMessage="",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"},
        events=[],
        links=[],
        resource={"service.name": "ward"},
        scope="pydantic-ai",
        scopeVersion="2.68.0",
        record={"kind": "step", "id": STEP_ID},
    )

    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    """`internal`, `server`, `client`, `producer`, `consumer` or `unspecified`. For an unknown kind,
    its number."""
    started_at: datetime | None
    """The start, to the microsecond; null if the span has no start."""
    finished_at: datetime | None
    """The end, to the microsecond; null while the span is open."""
    start_time_unix_nano: str
    end_time_unix_nano: str
    status_code: str
    """`unset`, `ok` or `error`. For an unknown status, its number."""
    status_message: str
    attributes: AttributesJson
    events: list[SpanEventSchema]
    links: list[SpanLinkSchema]
    resource: AttributesJson
    scope: str
    scope_version: str
    record: SpanRecord | None
    """The record that the span belongs to. If no record was made from the span itself, this is the
    record of a span above it."""

    @classmethod
    def of(cls, span: Span, record: RecordReference | None) -> SpanSchema:
        """Return the schema of a span."""
        return cls(
            span_id=span.span_id.hex(),
            parent_span_id=None if span.parent_span_id is None else span.parent_span_id.hex(),
            name=_text(span.name),
            kind=_word(_KINDS, span.kind),
            started_at=moment(span.start),
            finished_at=moment(span.end),
            start_time_unix_nano=str(span.start),
            end_time_unix_nano=str(span.end),
            status_code=_word(_STATUSES, span.status_code),
            status_message=_text(span.status_message),
            attributes=_json(span.attributes),
            events=[
                SpanEventSchema(
                    name=_text(event.name),
                    at=moment(event.time),
                    time_unix_nano=str(event.time),
                    attributes=_json(event.attributes),
                )
                for event in span.events
            ],
            links=[
                SpanLinkSchema(
                    trace_id=link.trace_id.hex(),
                    span_id=link.span_id.hex(),
                    attributes=_json(link.attributes),
                )
                for link in span.links
            ],
            resource=_json(span.resource),
            scope=_text(span.scope),
            scope_version=_text(span.scope_version),
            record=None if record is None else SpanRecord(kind=record[0], id=record[1]),
        )


class LogSchema(BaseModel):
    """A log record as received.

    `docs/reference/protocol.md` explains escaped characters in texts.
    """

    model_config = read_config(
        spanId="eee19b7ec3c1b174",
        at="2026-11-21T22:21:52.462812Z",
        timeUnixNano="1795299712462812345",
        name="user_prompt",
        body=None,
        attributes={"prompt": "Check the vital signs of bed 3."},
        resource={"service.name": "ward"},
        scope="com.anthropic.claude_code.events",
    )

    span_id: str | None
    """The id of the span that the log record names; null if it names none."""
    at: datetime | None
    """When the logged event happened, or else was observed, to the microsecond; null if unknown."""
    time_unix_nano: str
    name: str
    """The name of the event: the attribute `event.name`, else the field for the event's name, else
    the body, if that is text."""
    body: Any
    attributes: AttributesJson
    resource: AttributesJson
    scope: str

    @classmethod
    def of(cls, record: LogRecord) -> LogSchema:
        """Return the schema of a log record."""
        return cls(
            span_id=None if record.span_id is None else record.span_id.hex(),
            at=moment(record.time),
            time_unix_nano=str(record.time),
            name=_text(record.name),
            body=_value(record.body),
            attributes=_json(record.attributes),
            resource=_json(record.resource),
            scope=_text(record.scope),
        )


class SpanPage(PageSchema[SpanSchema]):
    """A page of spans, with their log records."""

    logs: list[LogSchema]
    """The log records of the spans on this page, by time. The first page of a run also contains
    log records whose span is unknown or missing. At most 1,000."""
    logs_left_out: int
    """The number of log records that are left out, because there are more than 1,000."""


def _text(text: str) -> str:
    return stored(text) or ""


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else str(number)


def _json(attributes: Mapping[str, Any]) -> AttributesJson:
    return {_text(name): _value(value) for name, value in attributes.items()}


def _value(value: Any) -> Any:
    # The recursion is bounded: the decoder rejects messages nested deeper than a hundred levels.
    match value:
        case str():
            return _text(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return _json(value)
        case list():
            return [_value(each) for each in value]
        case float() if not math.isfinite(value):
            return str(value)
        case int() if abs(value) >= _EXACT:
            return str(value)
    return value


MAX_LOGS = 1000
"""The largest number of log records in one response."""

router = APIRouter(prefix="/api/runs", tags=["runs"])


@router.get("/{rootPlanId}/spans", responses=documented(HTTPStatus.NOT_FOUND))
async def list_spans(
    root_plan_id: RootPlanId,
    reader: Reader,
    caller: Reading,
    span_indexes: SpanIndexDep,
    fresh: Fresh,
    record_id: Annotated[
        UUID | None, Query(alias="recordId", description="Spans of this record only.")
    ] = None,
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> SpanPage:
    """List the OpenTelemetry spans of a run, sorted by start.

    An agent's own span belongs to two records: the agent's step and its plan. A run that was
    recorded as events has spans only if the servers that its tools called sent spans.

    `logs` contains the log records of the listed spans.
    """
    last = None if cursor is None else _order_of(cursor)
    span_index = await span_indexes.of_run(reader, caller.project_id, root_plan_id, fresh)
    orders = span_index.after(last, record_id)
    page = orders[:limit]
    spans = await reader.read_spans(root_plan_id, [span_id for _, span_id in page])
    logs = await reader.read_logs(root_plan_id) if span_index.has_logs else []
    is_whole_run = last is None and record_id is None
    next_cursor = _cursor(page[-1]) if len(orders) > limit else None
    return await asyncio.to_thread(_page, spans, logs, span_index, next_cursor, is_whole_run)


def _page(
    spans: list[Span],
    logs: list[LogRecord],
    span_index: SpanIndex,
    next_cursor: str | None,
    with_other_logs: bool,
) -> SpanPage:
    shown = {span.span_id for span in spans}
    of_page = [
        record
        for record in logs
        if record.span_id in shown or (with_other_logs and not span_index.has(record.span_id))
    ]
    return SpanPage(
        items=[SpanSchema.of(span, span_index.record_keys.get(span.span_id)) for span in spans],
        next_cursor=next_cursor,
        logs=[LogSchema.of(record) for record in of_page[:MAX_LOGS]],
        logs_left_out=max(0, len(of_page) - MAX_LOGS),
    )


def _cursor(last: SpanOrder) -> str:
    start, span_id = last
    return f"{start:x}-{span_id.hex()}"


def _order_of(cursor: str) -> SpanOrder:
    start, _, span_id = cursor.partition("-")
    try:
        order = int(start, 16), bytes.fromhex(span_id)
    except ValueError:
        raise BadCursor() from None
    if len(order[1]) != SPAN_ID_BYTES:
        raise BadCursor()
    return order
