"""Which records the lists show, in Python: what `postgres_lists` says in SQL."""

from __future__ import annotations

from datetime import datetime

from tracer.lineage import Payloads
from tracer.records import ActToolInfo, Kind, Run
from tracer.storage.agreements import SEARCHED
from tracer.storage.memory_tree import Records, payload_fields
from tracer.store import RunFilter, ToolCallFilter, ToolCallPreview
from tracer.text import storable


def run_is_wanted(run: Run, records: Records, wanted: RunFilter) -> bool:
    """Return whether a list shows `run`, given all records below it."""
    return (
        _has_status(run, wanted.status)
        and _is_between(run, wanted.since, wanted.until)
        and (
            wanted.agent is None
            or _has(records, (Kind.PLAN, Kind.STEP), "agent_name", storable(wanted.agent))
        )
        and (wanted.tool is None or _has(records, (Kind.TOOL_CALL,), "name", storable(wanted.tool)))
        and (wanted.q is None or _mentions(records, storable(wanted.q)))
    )


def tool_call_is_wanted(call: ActToolInfo, wanted: ToolCallFilter) -> bool:
    """Return whether a list shows `call`."""
    return (
        _has_status(call, wanted.status)
        and _is_between(call, wanted.since, wanted.until)
        and (wanted.root_plan_id is None or call.root_plan_id == wanted.root_plan_id)
        and (wanted.name is None or call.name == storable(wanted.name))
        and (
            wanted.provider_call_id is None
            or call.provider_call_id == storable(wanted.provider_call_id)
        )
    )


def tool_call_preview(call: ActToolInfo) -> ToolCallPreview:
    """Return `call` as a list shows it."""
    payloads = payload_fields(Kind.TOOL_CALL, call, Payloads.PREVIEW)
    return ToolCallPreview(**call.model_dump() | payloads)


def _has_status(record: Run | ActToolInfo, shown: str | None) -> bool:
    return shown is None or record.shown_status == shown


def _is_between(record: Run | ActToolInfo, since: datetime | None, until: datetime | None) -> bool:
    moment = record.started_at or record.recorded_at
    assert moment is not None
    return (since is None or moment >= since) and (until is None or moment < until)


def _has(records: Records, kinds: tuple[Kind, ...], field: str, value: str) -> bool:
    return any(
        getattr(record, field) == value for kind in kinds for record in records[kind].values()
    )


def _mentions(records: Records, text: str) -> bool:
    return any(
        text.lower() in (getattr(record, field) or "").lower()
        for kind, fields in SEARCHED.items()
        for record in records[kind].values()
        for field in fields
    )
