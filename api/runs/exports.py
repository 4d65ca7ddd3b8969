"""The route that exports a run as a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from api.dependencies import Reader
from api.http.parameters import RootPlanId
from api.http.problems import documented
from api.schemas import PLAN_ID
from tracer.transfer.exporting import Format, exported

router = APIRouter(prefix="/api/runs", tags=["runs"])


class ExportFormat(StrEnum):
    """The format of an exported run."""

    JSONL = "jsonl"
    OTLP = "otlp"


_MEDIA_TYPES = {
    Format.JSONL: ("application/x-ndjson", "jsonl"),
    Format.OTLP: ("application/x-protobuf", "otlp"),
    Format.OTLP_JSON: ("application/json", "otlp.json"),
}
"""The media type of each format, and the extension of its files."""

_PART_BYTES = 2**18
"""The smallest size of a chunk. Chunks are large, because each needs a switch to a thread."""

_EXAMPLE = (
    f'{{"type":"plan_started","at":"2026-11-21T22:21:52.462812Z","rootPlanId":"{PLAN_ID}",'
    f'"planId":"{PLAN_ID}","title":"Weekly health review"}}\n'
    f'{{"type":"plan_finished","at":"2026-11-21T22:22:04.518201Z","rootPlanId":"{PLAN_ID}",'
    f'"planId":"{PLAN_ID}","status":"succeeded","summary":"All is well."}}\n'
)
"""Two lines of a run of events."""

_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The run as a file.",
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}, "example": _EXAMPLE},
            "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"resourceSpans": {"type": "array", "items": {"type": "object"}}},
                    "required": ["resourceSpans"],
                }
            },
        },
    }
}


@router.get(
    "/{rootPlanId}/export",
    response_class=StreamingResponse,
    responses={**_EXPORT, **documented(HTTPStatus.NOT_FOUND)},
)
async def export_run(
    root_plan_id: RootPlanId,
    request: Request,
    reader: Reader,
    wanted: Annotated[
        ExportFormat,
        Query(
            alias="format",
            description="The file format. `otlp` is protobuf; with `Accept: application/json`, it "
            "is JSON.",
        ),
    ] = ExportFormat.JSONL,
) -> StreamingResponse:
    """Export a run. `tracer import` sends the file to a server.

    `jsonl` has one JSON object per line. For a run of events these are events, a start and an end
    for each record, which `POST /api/events` accepts. For a run of spans each line is an OTLP/JSON
    document with one span or log record.

    `otlp` is a `TracesData` message for any OpenTelemetry backend. It contains the run's original
    spans. If the run was recorded as events, the spans are made from its records.
    """
    form = Format(wanted.value)
    if form is Format.OTLP and "application/json" in request.headers.get("accept", ""):
        form = Format.OTLP_JSON
    media_type, ending = _MEDIA_TYPES[form]
    run = await reader.read_whole_run(root_plan_id)
    return StreamingResponse(
        _in_parts(exported(run, form)),
        media_type=media_type,
        headers={
            "Content-Disposition": f'attachment; filename="{root_plan_id}.{ending}"',
            "Vary": "Accept",
        },
    )


def _in_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join the pieces into chunks of at least `_PART_BYTES`. Only the last may be smaller."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= _PART_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)
