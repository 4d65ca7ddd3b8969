"""Routes that list, count, read, start, cancel, export and delete runs."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.endpoints import HTTPEndpoint
from starlette.routing import Route

from api.conditional import NOT_MODIFIED, Conditional
from api.dependencies import (
    Administering,
    CancelRequestsDep,
    Fresh,
    LauncherDep,
    ProjectedReader,
    Reader,
    Writer,
)
from api.problems import documented
from api.requests import CursorText, PageSize, Period, RootPlanId, StoredText
from api.schemas import (
    PLAN_ID,
    BehindSchema,
    CancelRequests,
    RecordMatches,
    RunHistogramSchema,
    RunPreviewSchema,
    RunRequest,
    RunSchema,
    RunSearchSchema,
    SearchedPageSchema,
    ShownStatus,
    SingleRunSchema,
)
from tracer.context import Identity
from tracer.records import Kind
from tracer.records.pages import RunFacets, RunOrder
from tracer.store import RunFilter
from tracer.transfer import Format, exported

# --- Routes that list, count, read, start, cancel and delete runs.

router = APIRouter(prefix="/api/runs", tags=["runs"])


async def _filter(
    period: Period,
    status: Annotated[ShownStatus | None, Query(description="The status shown.")] = None,
    agent: Annotated[StoredText | None, Query(description="An agent that took part.")] = None,
    tool: Annotated[StoredText | None, Query(description="A tool that was called.")] = None,
    session: Annotated[
        StoredText | None, Query(description="The conversation of the run, as `sessionId`.")
    ] = None,
    subject: Annotated[StoredText | None, Query(description="The subject of the run.")] = None,
    tag: Annotated[StoredText | None, Query(description="A tag of the run.")] = None,
    service: Annotated[
        StoredText | None, Query(description="The service's name, as `service.name`.")
    ] = None,
    service_version: Annotated[
        StoredText | None,
        Query(alias="serviceVersion", description="The service's version, as `service.version`."),
    ] = None,
    environment: Annotated[
        StoredText | None,
        Query(description="Where the run took place, as `deployment.environment.name`."),
    ] = None,
    origin: Annotated[
        StoredText | None,
        Query(
            description="The tool, model or agent where the run failed, or that an abandoned run "
            "was waiting for."
        ),
    ] = None,
    error_type: Annotated[
        StoredText | None, Query(alias="errorType", description="The type of the error there.")
    ] = None,
    model: Annotated[
        StoredText | None,
        Query(
            description="A model that was used. It takes up to a minute until this filter, "
            "`origin` and `errorType` find a new run."
        ),
    ] = None,
    metadata_key: Annotated[
        StoredText | None,
        Query(alias="metadataKey", description="A key of the run's metadata, at its top level."),
    ] = None,
    min_cost: Annotated[
        float | None,
        Query(
            alias="minCost",
            ge=0,
            allow_inf_nan=False,
            description="The least known cost in US dollars.",
        ),
    ] = None,
    q: Annotated[
        StoredText | None,
        Query(
            description="Words that the run contains: in its texts, names, arguments, results or "
            'errors. `"Quotes"` make a phrase, and a minus excludes a word. The last word may be '
            "the beginning of a longer one."
        ),
    ] = None,
    other_traces: Annotated[
        bool,
        Query(
            alias="otherTraces",
            description="Whether to also list traces without an agent, model or tool call.",
        ),
    ] = False,
    parts: Annotated[
        Literal["all"] | None,
        Query(
            description="`all` makes each run an item. By default, the runs of one piece of work "
            "are one item."
        ),
    ] = None,
) -> RunFilter:
    return RunFilter(
        status=status,
        agent=agent,
        tool=tool,
        session=session,
        subject=subject,
        tag=tag,
        service=service,
        service_version=service_version,
        environment=environment,
        origin=origin,
        error_type=error_type,
        model=model,
        metadata_key=metadata_key,
        min_cost=min_cost,
        q=q,
        since=period.since,
        until=period.until,
        other_traces=other_traces,
        all_parts=parts is not None,
    )


WantedRuns = Annotated[RunFilter, Depends(_filter)]


@router.get("")
async def list_runs(
    reader: ProjectedReader,
    wanted: WantedRuns,
    sort: Annotated[
        RunOrder,
        Query(description="The value to sort by. A minus puts the greatest value first."),
    ] = RunOrder.LATEST,
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> SearchedPageSchema[RunPreviewSchema]:
    """List runs. By default, the run that started last comes first.

    A run without a start is sorted by the time of its first record. Runs that continue each other
    are one item: that of the first run (`parts`).

    With any other order, the server examines only the latest 100,000 runs. The filters for the
    status `failed`, the session, the subject and the time range apply before this limit. With any
    other filter, the server examines only the latest 10,000 of these runs. If there are more runs,
    `searchedBackTo` is set.

    With `q`, runs are sorted by the start of the part of the work that contains the words, and
    `found` shows where. With another order, the latest 10,000 runs that contain them are sorted.

    Runs without the value to sort by come last in both directions. For example, an open run has no
    duration.
    """
    page = await reader.list_runs(wanted, limit, cursor, sort)
    return SearchedPageSchema[RunPreviewSchema].model_validate(page)


@router.get("/histogram")
async def read_run_histogram(reader: ProjectedReader, wanted: WantedRuns) -> RunHistogramSchema:
    """Count the matching runs, in total and by time of start.

    The time range is divided into about 60 intervals. It begins at `from` or at the earliest run,
    and ends at `to` or at the latest run.

    Only the latest 100,000 runs are examined, or 10,000 with some filters, as for a sorted list. If
    there are more runs, `countedBackTo` is set, and `count` is a lower bound.
    """
    return RunHistogramSchema.model_validate(await reader.count_runs(wanted))


@router.get("/facets")
async def read_run_facets(reader: ProjectedReader, wanted: WantedRuns) -> RunFacets:
    """Count the values that matching runs have: services, agents, tags and others.

    Only the newest 10,000 runs are examined. If there are more, `countedBackTo` is set. Agents,
    models and types of errors of a new run are counted within a minute.
    """
    return await reader.read_facets(wanted)


# Rejects the other methods with 405. Without it, `DELETE /{rootPlanId}` would match these paths.
for _path in ("histogram", "facets"):
    router.routes.append(Route(f"{router.prefix}/{_path}", HTTPEndpoint, include_in_schema=False))


@router.post("", status_code=HTTPStatus.ACCEPTED, responses=documented(HTTPStatus.CONFLICT))
async def start_run(
    wanted: RunRequest,
    launcher: LauncherDep,
    traceparent: Annotated[str | None, Header(description="W3C trace context.")] = None,
) -> RunSchema:
    """Start a run of the server's application. The run continues after the response."""
    plan = None
    if wanted.plan is not None:
        plan = (wanted.plan.title, [(step.agent, step.request) for step in wanted.plan.steps])
    token = wanted.token_id
    run = await launcher.start(
        wanted.request,
        agent=wanted.agent,
        session_id=wanted.session_id,
        traceparent=traceparent,
        plan=plan,
        identity=None if token is None else Identity(token.get_secret_value()),
    )
    return RunSchema.model_validate(run)


@router.get("/{rootPlanId}", responses={**NOT_MODIFIED, **documented(HTTPStatus.NOT_FOUND)})
async def read_run(
    root_plan_id: RootPlanId, reader: Reader, conditional: Conditional, fresh: Fresh
) -> SingleRunSchema:
    """Read one run."""
    conditional.check(await reader.read_revision(Kind.RUN, root_plan_id))
    run = SingleRunSchema.model_validate(await reader.read_run(root_plan_id))
    if fresh.behind is not None:
        run.behind = BehindSchema.model_validate(fresh.behind)
        run.projection_error = fresh.behind.error
    return run


@router.get(
    "/{rootPlanId}/search",
    responses=documented(HTTPStatus.NOT_FOUND),
)
async def search_run(
    root_plan_id: RootPlanId,
    reader: Reader,
    q: Annotated[StoredText, Query(description="The words, as in the list of runs.")],
) -> RunSearchSchema:
    """Find the records of a run, and of the runs that continue it, that contain words.

    A record is returned if it contains one of the words or phrases. The latest 1,000 records, or 16
    MB of texts, are the limit (`hasMore`).
    """
    return RunSearchSchema.model_validate(await reader.search_run(root_plan_id, q))


@router.delete(
    "/{rootPlanId}",
    status_code=HTTPStatus.NO_CONTENT,
    responses=documented(HTTPStatus.NOT_FOUND),
)
async def delete_run(
    root_plan_id: RootPlanId,
    writer: Writer,
    caller: Administering,
    parts: Annotated[
        Literal["all", "own"],
        Query(description="Whether to delete the runs that continue the run, too."),
    ] = "all",
) -> None:
    """Delete a run with all data. If events of this run arrive later, they are rejected.

    The first run of a piece of work is deleted with the runs that continue it.
    """
    await writer.delete_run(root_plan_id, all_parts=parts == "all")


@router.post(
    "/{rootPlanId}/cancel",
    status_code=HTTPStatus.ACCEPTED,
    responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
async def cancel_run(root_plan_id: RootPlanId, writer: Writer, caller: Administering) -> RunSchema:
    """Request the cancellation of a run. The process that executes the run then cancels it."""
    return RunSchema.model_validate(await writer.request_cancel(root_plan_id))


# --- The route by which a process that runs agents learns which of its runs to cancel.
#
# A process with a database connection reads the requests from the database.

cancel_router = APIRouter(prefix="/api/cancel-requests", tags=["runs"])


@cancel_router.get("")
async def find_cancel_requests(
    root_plan_ids: Annotated[
        list[UUID],
        Query(alias="rootPlanId", max_length=100, description="The runs to check."),
    ],
    reader: CancelRequestsDep,
) -> CancelRequests:
    """Find which of the given runs have a request to be cancelled or deleted.

    Runs that the server does not know are omitted.
    """
    run_ids = await reader.find_cancel_requests(root_plan_ids)
    return CancelRequests(root_plan_ids=sorted(run_ids))


# --- The route that finds the record that an id means.

find_router = APIRouter(prefix="/api/find", tags=["runs"])


@find_router.get("")
async def find_records(
    reader: Reader,
    reference: Annotated[
        StoredText,
        Query(
            alias="id",
            description="An id of a run or record, a trace id, `TRACE:SPAN`, a handle such as "
            "`r0123456789`, or the id that a model provider gave a tool call.",
        ),
    ],
) -> RecordMatches:
    """Find the records that an id may mean, with their runs. None is an answer without items."""
    found = await reader.find_records(reference, with_runs=True)
    return RecordMatches.model_validate({"items": found})


# --- The route that exports a run as a file.

export_router = APIRouter(prefix="/api/runs", tags=["runs"])


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

_EXAMPLE = (
    f'{{"type":"plan_started","at":"2026-11-21T22:21:52.462812Z","rootPlanId":"{PLAN_ID}",'
    f'"planId":"{PLAN_ID}","title":"Weekly health review"}}\n'
    f'{{"type":"plan_finished","at":"2026-11-21T22:22:04.518201Z","rootPlanId":"{PLAN_ID}",'
    f'"planId":"{PLAN_ID}","status":"succeeded","summary":"All is well."}}\n'
    '{"end":true,"unreadableBlocks":0}\n'
)
"""A run of events with two lines."""

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


@export_router.get(
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
    """Export a run, with the runs that continue it. `tracer import` sends the file to a server.

    `jsonl` has one JSON object per line. For a run of events these are events, a start and an end
    for each record, which `POST /api/events` accepts. For a run of spans each line is an OTLP/JSON
    document with one span or log record.

    `otlp` is a `TracesData` message for any OpenTelemetry backend. It contains the run's original
    spans. If the run was recorded as events, the spans are made from its records.

    The spans of a large run are in the order in which they were stored, and a span may occur again
    in a later version. The last line is `{"end": true, "unreadableBlocks": N}`. Without it the file
    is incomplete. N is the number of damaged blocks of spans, which are left out.
    """
    form = Format(wanted.value)
    if form is Format.OTLP and "application/json" in request.headers.get("accept", ""):
        form = Format.OTLP_JSON
    media_type, ending = _MEDIA_TYPES[form]
    run = await reader.read_whole_run(root_plan_id, with_projected=False)
    return StreamingResponse(
        exported(reader, run, form),
        media_type=media_type,
        headers={
            "Content-Disposition": f'attachment; filename="{root_plan_id}.{ending}"',
            "Vary": "Accept",
        },
    )
