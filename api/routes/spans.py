"""The route that lists the OpenTelemetry spans and log records of a run, as received."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from api.dependencies import Fresh, Reader
from api.problems import documented
from api.requests import CursorText, PageSize, RootPlanId, until_client_leaves
from api.schemas import STEP_ID, PageSchema, read_config
from tracer.errors import BadCursor, TooBusy
from tracer.otel.otlp.spans import merge_logs, moment, stored
from tracer.records import Kind
from tracer.records.record_classes import RecordReference
from tracer.records.span_records import SpanRecords
from tracer.records.spans import SPAN_ID_BYTES, Contents, LogRecord, Span, newest
from tracer.store import SpanPart, TraceReader

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
    """If `recordId` is given, the log records of the spans on this page. Otherwise those that are
    stored with these spans, also if their span is unknown or missing. By time, at most 1,000."""
    logs_left_out: int
    """The number of log records that are left out, because there are more than 1,000."""
    unreadable_blocks: int
    """The number of damaged blocks of spans that were left out while this page was read."""


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


PAGE_BYTES = 8 * 2**20
"""A page with so many bytes of spans has no further span, so that reading it takes less than 64 MB
of memory."""

MAX_LOGS = 1000
"""The largest number of log records in one response."""

router = APIRouter(prefix="/api/runs", tags=["runs"])


@router.get("/{rootPlanId}/spans", responses=documented(HTTPStatus.NOT_FOUND))
async def list_spans(
    root_plan_id: RootPlanId,
    request: Request,
    reader: Reader,
    fresh: Fresh,
    record_id: Annotated[
        UUID | None, Query(alias="recordId", description="Spans of this record only.")
    ] = None,
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> SpanPage:
    """List the OpenTelemetry spans of a run.

    The spans of a record are sorted by start. Those of a run are in the order of storage: about
    4 MB at a time are sorted by start, and a later version of a span may appear again. A page has
    fewer spans than `limit` if they are large: it ends with the span with which it reaches 8 MB.

    An agent's own span belongs to two records: the agent's step and its plan. A run that was
    recorded as events has spans only if the servers that its tools called sent spans.
    """
    last = None if cursor is None else _position_of(cursor)
    page = _Page(reader, root_plan_id, limit, last)
    return await until_client_leaves(request, page.read(record_id))


SpanOrder = tuple[int, bytes]
"""The sort key of a span: its start and its id."""

_Position = tuple[bytes, SpanOrder]
"""The first block of a part of a run, empty for the first part, and a span in this part."""


class _Page:
    """Reads a page of a run's spans, a part of the stored spans at a time."""

    def __init__(
        self, reader: TraceReader, root_plan_id: UUID, limit: int, last: _Position | None
    ) -> None:
        """Set the run, the largest number of spans, and the end of the previous page."""
        self._reader = reader
        self._root_plan_id = root_plan_id
        self._limit = limit
        self._last = last
        self._spans: list[Span] = []
        self._logs: list[LogRecord] = []
        self._left_out = 0
        self._unreadable = 0

    async def read(self, record_id: UUID | None) -> SpanPage:
        """Return the page of the run, or of one of its records."""
        records, span_ids = await self._reader.read_span_records(self._root_plan_id, record_id)
        parts = await self._reader.list_span_parts(self._root_plan_id, with_sessions=True)
        if span_ids is None:
            next_cursor = await self._read_stored(parts)
        else:
            next_cursor = await self._read_record(parts, span_ids, records)
        return await asyncio.to_thread(self._schema, records, next_cursor)

    async def _read_stored(self, parts: Sequence[SpanPart]) -> str | None:
        """Read spans in the order of storage, with all log records of each part that begins."""
        firsts = [b"", *(part.keys[0] for part in parts[1:])]
        begin, after, end = 0, None, ""
        if self._last is not None:
            first, after = self._last
            if first not in firsts:  # the server has merged the blocks of the run
                raise BadCursor()
            begin = firsts.index(first)
        for first, part in zip(firsts[begin:], parts[begin:], strict=False):
            contents = await self._contents(part)
            spans = [span for span in contents.spans if after is None or span.order > after]
            fitting = _fitting(spans, self._limit, self._spans)
            if spans and not fitting:
                return end
            self._spans += fitting
            if after is None:
                self._add_logs(contents.logs)
                self._unreadable += contents.unreadable
            if self._spans:
                end = _cursor(first, self._spans[-1].order)
            if len(fitting) < len(spans):
                return end
            after = None
        return None

    async def _read_record(
        self, parts: Sequence[SpanPart], span_ids: set[bytes], records: SpanRecords
    ) -> str | None:
        """Read the spans of a record, sorted by start, and their log records."""
        after = None if self._last is None else self._last[1]
        end: SpanOrder | None = None
        found: dict[SpanOrder, Span] = {}
        with_logs: list[SpanPart] = []
        for part in parts:
            contents = await self._contents(part, span_ids)
            self._unreadable += contents.unreadable
            with_logs += [part] if contents.logs else []
            for span in contents.spans:
                if (after is None or span.order > after) and (end is None or span.order <= end):
                    other = found.get(span.order)
                    found[span.order] = span if other is None else newest([other, span])
            self._spans = _fitting([found[order] for order in sorted(found)], self._limit)
            if len(self._spans) < len(found):
                end = self._spans[-1].order
                found = {span.order: span for span in self._spans}
        shown = {span.span_id for span in self._spans}
        for part in with_logs:
            contents = await self._contents(part, ())
            self._add_logs([each for each in contents.logs if each.span_id in shown])
        return _cursor(b"", self._spans[-1].order) if end else None

    async def _contents(
        self, part: SpanPart, span_ids: Collection[bytes] | None = None
    ) -> Contents:
        contents = await self._reader.read_span_part(part, span_ids)
        if contents is None:  # the server has merged the blocks of the run
            raise TooBusy("The spans of the run are being merged. Send the request again.")
        return contents

    def _add_logs(self, logs: Sequence[LogRecord]) -> None:
        merged = merge_logs([*self._logs, *logs])
        self._logs = merged[:MAX_LOGS]
        self._left_out += len(merged) - len(self._logs)

    def _schema(self, records: SpanRecords, next_cursor: str | None) -> SpanPage:
        return SpanPage(
            items=[SpanSchema.of(span, records.record_of(span)) for span in self._spans],
            next_cursor=next_cursor,
            logs=[LogSchema.of(record) for record in self._logs],
            logs_left_out=self._left_out,
            unreadable_blocks=self._unreadable,
        )


def _fitting(spans: Sequence[Span], most: int, before: Sequence[Span] = ()) -> list[Span]:
    """Return the first of `spans` that a page has room for after the spans `before`.

    A page has at most `most` spans. It ends with the span that makes it as large as `PAGE_BYTES`.
    """
    size = sum(len(span.body) for span in before)
    fitting: list[Span] = []
    for span in spans[: most - len(before)]:
        if size >= PAGE_BYTES:
            break
        fitting.append(span)
        size += len(span.body)
    return fitting


def _cursor(first: bytes, last: SpanOrder) -> str:
    start, span_id = last
    return f"{first.hex()}-{start:x}-{span_id.hex()}"


def _position_of(cursor: str) -> _Position:
    try:
        first, start, span_id = cursor.split("-")
        position = bytes.fromhex(first), (int(start, 16), bytes.fromhex(span_id))
    except ValueError:
        raise BadCursor() from None
    if len(position[1][1]) != SPAN_ID_BYTES:
        raise BadCursor()
    return position
