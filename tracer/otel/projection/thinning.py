"""Thin out a run: remove the spans that its records do not need."""

from __future__ import annotations

from collections.abc import Sequence

from tracer.otel.dialects.span_facts import WRAPPER
from tracer.otel.otlp.repacking import Item, message_with
from tracer.otel.projection.interpret import RunSpans, read_run
from tracer.otel.projection.project import RUN_FIELDS, ProjectedRun, project_run

_IS_AGENT_WORK = RUN_FIELDS.index("is_agent_work")


def thinned(items: Sequence[Item], of_sessions: Sequence[bytes] = ()) -> Sequence[Item] | None:
    """Return the spans and log records of a run, without spans that are not agent work.

    The result contains all log records, the spans of agents, model calls and tool calls, and the
    spans above them. The records of the run stay the same. If removing spans would change them,
    fewer or no spans are removed.

    Args:
        items: The run's spans and log records.
        of_sessions: The stored messages of the own runs (`session_run_id`) of the sessions that
            this run's log records name.

    Returns:
        The remaining items; None if the run contains no agent work. The items of a session's own
        run are returned unchanged.
    """
    whole = [message_with(items)]
    before = project_run(whole, of_sessions)
    if before.is_of_session:
        return items
    if not before.run[_IS_AGENT_WORK]:
        return None
    run = read_run(whole, of_sessions)
    needed = _needed(run)
    for needed_ids in (needed, needed | _framing(run)):
        fewer = [item for item in items if item.span_id is None or item.span_id in needed_ids]
        if len(fewer) == len(items):
            break
        if _is_same(before, project_run([message_with(fewer)], of_sessions)):
            return fewer
    return items


def _needed(run: RunSpans) -> set[bytes]:
    """Return the ids of the spans that a dialect recognizes, and of all spans above them."""
    needed_ids = {*run.announced, *run.announced.values()}
    for span in run.spans:
        # A wrapper with a conversation or a subject is needed, too.
        at = span if span.facts != WRAPPER else None
        while at is not None and at.span_id not in needed_ids:
            needed_ids.add(at.span_id)
            at = at.parent
    return needed_ids


def _framing(run: RunSpans) -> set[bytes]:
    """Return the ids of the spans that determine the root plan if no single agent is the root."""
    tops = {span.span_id for span in run.spans if span.parent is None}
    return tops | {run.spans[0].span_id, max(run.spans, key=lambda span: span.end).span_id}


def _is_same(one: ProjectedRun, other: ProjectedRun) -> bool:
    return (one.run, one.rows, one.sessions) == (other.run, other.rows, other.sessions)
