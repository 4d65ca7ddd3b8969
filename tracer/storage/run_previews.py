"""Previews of runs for the list, computed from the failed and running records of the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from tracer.lineage.failures import FailedRecord, explained_by, failure_origins
from tracer.records.record_classes import Kind, Run
from tracer.records.run_previews import (
    PREVIEW_CHARACTERS,
    NotableRecord,
    OpenCall,
    RunFailure,
    RunPreview,
    RunTexts,
    open_call,
)
from tracer.text import beginning


def run_previews(
    runs: Sequence[Run],
    texts: Mapping[UUID, RunTexts],
    records: Iterable[NotableRecord],
    seen: Mapping[UUID, datetime],
) -> list[RunPreview]:
    """Return the previews of `runs` that the run list shows.

    Args:
        runs: The runs.
        texts: The question, the answer and the number of sub-agents of each run.
        records: The failed and the running records of the runs.
        seen: The last heartbeat of a run's recorders.
    """
    of_run: dict[UUID, list[NotableRecord]] = defaultdict(list)
    for record in records:
        of_run[record.root_plan_id].append(record)
    return [
        _preview(
            run,
            texts.get(run.root_plan_id, RunTexts(None, None, 0)),
            of_run[run.root_plan_id],
            seen.get(run.root_plan_id),
        )
        for run in runs
    ]


def _preview(
    run: Run, texts: RunTexts, records: Sequence[NotableRecord], seen_at: datetime | None
) -> RunPreview:
    failed = {(each.kind, each.record_id): each for each in records if each.has_failed}
    origins = failure_origins(
        (
            FailedRecord(
                place,
                explained_by(each.tool_call, each.think_act, each.step, each.plan),
                each.finished_at,
            )
            for place, each in failed.items()
        ),
        (Kind.PLAN, run.root_plan_id),
    )
    failure = None
    if origins and origins[0].depth is not None:
        began = failed[origins[0].place]  # type: ignore[index]  # it is one of those above
        failure = RunFailure(
            kind=began.kind,
            id=began.record_id,
            name=began.name,
            reason=began.reason,
            error_type=began.error_type,
            error_message=_shown(began.error_message),
            depth=origins[0].depth,
        )
    is_open = not run.status.is_ending
    waits_for = open_call(records) if is_open else None
    shown = {
        "request": _shown(texts.request),
        "answer": _shown(texts.answer),
        "sub_agents": texts.sub_agents,
        "failures": len(origins),
        "handled_failures": sum(origin.is_handled for origin in origins),
        "failure": failure,
        "open_call": None
        if waits_for is None
        else OpenCall(
            kind=waits_for.kind,
            id=waits_for.record_id,
            name=waits_for.name,
            arguments=_shown(waits_for.arguments),
            started_at=waits_for.started_at,
        ),
        "seen_at": seen_at if is_open else None,
    }
    return RunPreview(**dict(run) | shown)


def _shown(text: str | None) -> str | None:
    return None if text is None else beginning(text, PREVIEW_CHARACTERS)
