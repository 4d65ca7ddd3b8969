"""Figures of days in UTC: the contributions of runs, their sums, and the overview.

`run_part_of_day` contains the contributions of each run, `run_day` their sums (decision 28). The
job in `rollups` writes both, at most a minute after a change. A read adds the changes of the newest
runs that the job has not visited since.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

from tracer.errors import BadRequest
from tracer.records import ABANDONED, Kind, Run, Status
from tracer.records.pages import (
    FailureGroup,
    Overview,
    OverviewFilter,
    RunCounts,
    RunFigures,
    RunPreview,
    Spend,
    SpendOf,
    TimeRange,
    moment_of,
)
from tracer.storage.postgres.histograms import bucket_of, bucket_of_value, percentile
from tracer.storage.postgres.lists import Where, count_running, read_labels, read_run_previews
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.rows import columns, select
from tracer.storage.postgres.tables import RUN_NOT_DELETED, column_type, unpriced
from tracer.store import RunFilter
from tracer.text import beginning

# --- What a run contributes to its day.

_LONGEST = 200
"""Longer texts are cut, because each day has a row for each combination of them."""
_MOST_NAMES = 100


class Contribution(NamedTuple):
    """A row of `run_part_of_day`: a piece of work, or the calls of one model by one agent."""

    day: date
    service_name: str | None
    deployment_environment: str | None
    agents: tuple[str, ...]
    models: tuple[str, ...]
    origin_kind: Kind | None = None
    origin_name: str | None = None
    error_type: str | None = None
    runs: int = 0
    failed: int = 0
    abandoned: int = 0
    running: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    unpriced_calls: int = 0
    duration_ms: float | None = None


_FIGURES = Contribution._fields[8:-1]
"""The columns that are added up."""
_SPENT = _FIGURES[4:]
"""Those of model calls."""
_KEY = Contribution._fields[:8]
_ORIGIN = Contribution._fields[5:8]

_RUNS = f"""
SELECT {columns(Run, "= ANY(%(runs)s)")} FROM run
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND is_agent_work
    AND {RUN_NOT_DELETED}"""

_PARTS = f"""
SELECT head_id, root_plan_id FROM run
WHERE project_id = %(project_id)s AND head_id = ANY(%(heads)s) AND {RUN_NOT_DELETED}"""

_CALLS = f"""
SELECT step.root_plan_id, step.agent_name, coalesce(round.model, round.requested_model),
    count(round.think_act_id), coalesce(sum(round.input_tokens), 0)::bigint,
    coalesce(sum(round.output_tokens), 0)::bigint, coalesce(sum(round.cost_usd), 0),
    coalesce(sum({unpriced("round")}), 0)::bigint
FROM agent_execution_record AS step
LEFT JOIN think_act_record AS round ON round.project_id = step.project_id
    AND round.root_plan_id = step.root_plan_id AND round.step_id = step.step_id
WHERE step.project_id = %(project_id)s AND step.root_plan_id = ANY(%(runs)s)
    AND step.recorded_at > '-infinity'
GROUP BY 1, 2, 3"""
"""Model calls by run, agent and model. Agents without model calls are included."""


def contributions(
    connection: SyncConnection, project_id: int, runs: Collection[UUID]
) -> Iterator[tuple[UUID, Contribution]]:
    """Yield what runs contribute. Deleted runs and traces without agent work contribute nothing."""
    parameters: dict[str, Any] = {"project_id": project_id, "runs": list(runs)}
    found = select(connection, Run, _RUNS, parameters)
    heads = [run for run in found if run.continues_run_id is None]
    parameters["heads"] = [run.root_plan_id for run in heads if run.whole_status is not None]
    parts = defaultdict(list)
    for head_id, run_id in connection.execute(_PARTS, parameters).fetchall():
        parts[head_id].append(run_id)
    ids = {run.root_plan_id for run in found}.union(*parts.values())
    calls: dict[UUID, list[tuple[Any, ...]]] = defaultdict(list)
    for run_id, *row in connection.execute(_CALLS, parameters | {"runs": list(ids)}).fetchall():
        calls[run_id].append(tuple(row))
    for run in found:
        for agent, model, *figures in calls[run.root_plan_id]:
            if figures[0]:
                part = Contribution(*_of_run(run, [agent], [model]))
                values = zip(_SPENT, figures, strict=True)
                yield run.root_plan_id, part._replace(**dict(values))
    for preview in read_run_previews(connection, project_id, heads):
        run_id = preview.root_plan_id
        used = [row for part in (run_id, *parts[run_id]) for row in calls[part]]
        agents = [preview.agent_name, *(agent for agent, *_ in used)]
        of_run = _of_run(preview, agents, [model for _, model, *_ in used])
        yield run_id, Contribution(*of_run, **_outcome(preview))


def _of_run(run: Run, agents: Collection[str | None], models: Collection[str | None]) -> Any:
    """Return the fields of a contribution up to the models."""
    return (
        moment_of(run).astimezone(UTC).date(),
        _cut(run.service_name),
        _cut(run.deployment_environment),
        *(
            tuple(sorted({beginning(name, _LONGEST) for name in names if name})[:_MOST_NAMES])
            for names in (agents, models)
        ),
    )


def _cut(text: str | None) -> str | None:
    return None if text is None else beginning(text, _LONGEST)


def _outcome(run: RunPreview) -> dict[str, Any]:
    status = run.shown_status
    origin = {Status.FAILED: run.failure, ABANDONED: run.open_call}.get(status)
    has_times = run.status.is_ending and run.started_at and run.finished_at
    return {
        "origin_kind": origin and origin.kind,
        "origin_name": origin and _cut(origin.name),
        "error_type": _cut(run.failure.error_type) if origin and run.failure else None,
        "runs": 1,
        "failed": int(status == Status.FAILED),
        "abandoned": int(status == ABANDONED),
        "running": int(status != ABANDONED and not run.status.is_ending),
        "duration_ms": _milliseconds(run) if has_times else None,
    }


def _milliseconds(run: Run) -> float:
    assert run.started_at is not None
    assert run.finished_at is not None
    return (run.finished_at - run.started_at) / timedelta(milliseconds=1)


# --- Write contributions and their sums.

_TYPES = {
    name: column_type("run_part_of_day", name)
    for name in ("root_plan_id", "number", *Contribution._fields)
}

_STORED = f"""
SELECT root_plan_id, {", ".join(Contribution._fields)} FROM run_part_of_day
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)"""

_REMOVE = """
DELETE FROM run_part_of_day WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)"""

_ADD = f"""
INSERT INTO run_part_of_day (project_id, {", ".join(_TYPES)})
SELECT %(project_id)s, {", ".join(_TYPES)}
FROM json_to_recordset(%(rows)s) AS new ({
    ", ".join(f"{name} {type_}" for name, type_ in _TYPES.items())
}) ON CONFLICT DO NOTHING"""  # without a conflict, as in `linker.ADD_LINKS`

_OF_DAYS = "project_id = %(project_id)s AND day = ANY(%(days)s)"

_REMOVE_DAYS = f"DELETE FROM run_day WHERE {_OF_DAYS}"

_BY = ", ".join(_KEY)
_HAS_ENDED = "FILTER (WHERE bucket IS NOT NULL)"

_ADD_DAYS = f"""
INSERT INTO run_day (project_id, number, {_BY}, {", ".join(_FIGURES)}, sample_run_id, buckets,
    bucket_counts)
SELECT %(project_id)s, row_number() OVER (PARTITION BY day), {_BY},
    {", ".join(f"sum({name})" for name in _FIGURES)},
    (array_agg(sample_run_id ORDER BY sample_run_id DESC))[1],
    coalesce(array_agg(bucket ORDER BY bucket) {_HAS_ENDED}, '{{}}'),
    coalesce(array_agg(filled ORDER BY bucket) {_HAS_ENDED}, '{{}}')
FROM (
    SELECT {_BY}, bucket, count(*) AS filled,
        {", ".join(f"sum({name}) AS {name}" for name in _FIGURES)},
        (array_agg(root_plan_id ORDER BY root_plan_id DESC))[1] AS sample_run_id
    FROM (
        SELECT *, {bucket_of("duration_ms")} AS bucket FROM run_part_of_day WHERE {_OF_DAYS}
    ) AS part GROUP BY {_BY}, bucket
) AS by_bucket GROUP BY {_BY}"""


def replace_contributions(
    connection: SyncConnection, project_id: int, runs: Collection[UUID], present: Collection[UUID]
) -> None:
    """Bring the contributions of runs up to date, and the sums of their days.

    Args:
        connection: In a transaction that locks the project's roll-ups.
        project_id: The project.
        runs: The runs.
        present: Those that are not deleted.
    """
    stored = _stored(connection, project_id, runs)
    computed = {*contributions(connection, project_id, present)}
    changed = stored ^ computed
    if not changed:
        return
    changed_runs = {run_id for run_id, _ in changed}
    new = [
        dict(zip(_TYPES, (run_id, number, *part), strict=True))
        for number, (run_id, part) in enumerate(computed)
        if run_id in changed_runs
    ]
    parameters: dict[str, Any] = {
        "project_id": project_id,
        "runs": list(changed_runs),
        "rows": json.dumps(new, default=str),
        "days": list({part.day for _, part in changed}),
    }
    for statement in (_REMOVE, _ADD, _REMOVE_DAYS, _ADD_DAYS):
        connection.execute(statement, parameters)


def _stored(
    connection: SyncConnection, project_id: int, runs: Collection[UUID]
) -> set[tuple[UUID, Contribution]]:
    rows = connection.execute(_STORED, {"project_id": project_id, "runs": list(runs)}).fetchall()
    parts = ((run_id, Contribution(*part)) for run_id, *part in rows)
    return {
        (run_id, part._replace(agents=tuple(part.agents), models=tuple(part.models)))
        for run_id, part in parts
    }


# --- Read the sums, with the changes that they do not contain yet.

MOST_CHANGED = 200
"""The most changed runs that a read visits."""

MOST_ITEMS = 100
"""The most items of a division of spend."""

MOST_GROUPS = 50
"""The most groups of failures."""

USER_DAYS = 30
"""The longest period by whose users spend is divided, because no sums by user are stored."""

_CHANGED = f"""
SELECT root_plan_id, subject FROM run WHERE project_id = %(project_id)s AND NOT is_summed
ORDER BY recorded_at DESC, root_plan_id DESC LIMIT {MOST_CHANGED}"""

_TODAY = "SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date"


def _sums_of(figures: Sequence[str]) -> str:
    """Return the columns of sums. A sum of integers is numeric, which JSON has as a string."""
    return ", ".join(
        f"sum({name})" if name == "cost_usd" else f"sum({name})::bigint" for name in figures
    )


@dataclass(frozen=True)
class _Range:
    """A range of days, and the criteria of the figures in it."""

    since: date | None
    until: date | None
    wanted: OverviewFilter

    @classmethod
    def of(cls, period: TimeRange, wanted: OverviewFilter) -> _Range:
        """Extend a period to whole days."""
        since, until = (
            None if each is None else each.astimezone(UTC) for each in (period.since, period.until)
        )
        last = until and (until - timedelta(microseconds=1)).date() + timedelta(days=1)
        return cls(since and since.date(), last, wanted)

    def where(self, project_id: int) -> Where:
        """Return the condition of rows of `run_day` or `run_part_of_day`."""
        where = Where()
        where.add("project_id = %(project_id)s", project_id=project_id)
        where.add("day >= %(since)s", since=self.since)
        where.add("day < %(until)s", until=self.until)
        where.add("service_name = %(service)s", service=_cut(self.wanted.service))
        where.add("deployment_environment = %(env)s", env=_cut(self.wanted.environment))
        where.add("%(agent)s = ANY(agents)", agent=_cut(self.wanted.agent))
        where.add("%(model)s = ANY(models)", model=_cut(self.wanted.model))
        return where

    def has(self, part: Contribution) -> bool:
        """Return whether it contains a contribution."""
        wanted = self.wanted
        return (
            (self.since is None or part.day >= self.since)
            and (self.until is None or part.day < self.until)
            and wanted.service in (None, part.service_name)
            and wanted.environment in (None, part.deployment_environment)
            and (wanted.agent is None or _cut(wanted.agent) in part.agents)
            and (wanted.model is None or _cut(wanted.model) in part.models)
        )


class _Change(NamedTuple):
    """A contribution that the sums lack, or that they still contain."""

    sign: int
    run_id: UUID
    user: str | None
    part: Contribution


def _changes(connection: SyncConnection, project_id: int, within: _Range) -> list[_Change]:
    users: dict[UUID, str | None] = dict(
        connection.execute(_CHANGED, {"project_id": project_id}).fetchall()
    )
    if not users:
        return []
    old = _stored(connection, project_id, users)
    new = {*contributions(connection, project_id, users)}
    return [
        _Change(1 if (run_id, part) in new else -1, run_id, users[run_id], part)
        for run_id, part in old ^ new
        if within.has(part)
    ]


def _add(total: Spend, sign: int, figures: Sequence[Any]) -> None:
    """Add to a total the figures of a row, the last of `_FIGURES`."""
    for name, value in zip(_FIGURES[-len(figures) :], figures, strict=True):
        setattr(total, name, getattr(total, name) + sign * value)


def read_overview(
    connection: SyncConnection, project_id: int, period: TimeRange, wanted: OverviewFilter
) -> Overview:
    """Return the figures of a period, and of the period before it.

    Args:
        connection: In a transaction with one snapshot.
        project_id: The project.
        period: The period, which is extended to whole days.
        wanted: The criteria.
    """
    within = _Range.of(period, wanted)
    since, first = within.since, within.since
    if since is not None:
        [(today,)] = connection.execute(_TODAY).fetchall()
        first = since - max((within.until or today + timedelta(days=1)) - since, timedelta(days=1))
    both = _Range(first, within.until, wanted)
    where = both.where(project_id)
    is_now = "true" if since is None else "day >= %(now)s"
    parameters = where.values | {"now": since}
    rows = connection.execute(
        f"""SELECT day, {", ".join(_ORIGIN)},
            (array_agg(sample_run_id ORDER BY day DESC, sample_run_id DESC))[1],
            {_sums_of(_FIGURES)}
        FROM run_day WHERE {where} GROUP BY day, {", ".join(_ORIGIN)}""",
        parameters,
    ).fetchall()
    histograms: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for of_period, bucket, filled in connection.execute(
        f"""SELECT {is_now}, bucket, sum(filled)::bigint
        FROM run_day CROSS JOIN LATERAL unnest(buckets, bucket_counts) AS each (bucket, filled)
        WHERE {where} GROUP BY 1, 2""",
        parameters,
    ).fetchall():
        histograms[of_period][bucket] = filled
    signed: list[tuple[Any, ...]] = [(1, row[0], row[1:4], row[4], row[5:]) for row in rows]
    for sign, run_id, _, part in _changes(connection, project_id, both):
        signed.append((sign, part.day, part[5:8], run_id, part[8:-1]))
        if part.duration_ms is not None:
            of_period = since is None or part.day >= since
            histograms[of_period][bucket_of_value(part.duration_ms)] += sign
    total, before = (RunFigures(p95_ms=percentile(histograms[key], 0.95, inf)) for key in _PERIODS)
    days: dict[date, RunCounts] = {}
    groups: dict[Any, FailureGroup] = {}
    for sign, day, origin, sample_id, figures in sorted(signed, key=lambda row: row[1]):
        if since is not None and day < since:
            _add(before, sign, figures)
            continue
        _add(total, sign, figures)
        _add(days.setdefault(day, RunCounts(day=day)), sign, figures)
        for count, is_abandoned in ((figures[1], False), (figures[2], True)):
            if count:
                kind, name, error_type = origin
                new = FailureGroup(
                    kind=kind,
                    name=name,
                    error_type=error_type,
                    is_abandoned=is_abandoned,
                    sample_run_id=sample_id,
                )
                group = groups.setdefault((*origin, is_abandoned), new)
                group.runs += sign * count
                if sign > 0:
                    group.sample_run_id = sample_id
    failures = sorted(groups.values(), key=lambda group: (-group.runs, str(group.name)))
    failures = [group for group in failures if group.runs > 0][:MOST_GROUPS]
    labels = read_labels(connection, project_id, [group.sample_run_id for group in failures])
    for group in failures:
        group.sample_label = labels.get(group.sample_run_id)
    running, stuck = count_running(connection, project_id, RunFilter(**vars(wanted)))
    return Overview(
        since=since,
        until=within.until,
        total=total,
        before=None if since is None else before,
        days=[each for each in days.values() if each.runs or each.calls],
        failures=failures,
        running=running,
        stuck=stuck,
    )


_PERIODS = (True, False)
"""Whether a figure belongs to the period itself, or to the one before."""


_OF_USERS = """(
    SELECT run.subject, part.* FROM run_part_of_day AS part
    JOIN run ON run.project_id = part.project_id AND run.root_plan_id = part.root_plan_id
) AS part"""

_DIVISIONS: dict[str, tuple[str, str, Callable[[_Change], str | None]]] = {
    "model": ("run_day", "models[1]", lambda change: next(iter(change.part.models), None)),
    "agent": ("run_day", "agents[1]", lambda change: next(iter(change.part.agents), None)),
    "service": ("run_day", "service_name", lambda change: change.part.service_name),
    "day": ("run_day", "day::text", lambda change: str(change.part.day)),
    "user": (_OF_USERS, "subject", lambda change: change.user),
}
"""The divisions of spend: the table, the SQL of a row's name, and the name of a change."""


def read_spend(
    connection: SyncConnection,
    project_id: int,
    period: TimeRange,
    by: str,
    wanted: OverviewFilter,
) -> list[SpendOf]:
    """Return what model calls cost, by `model`, `agent`, `service`, `user` or `day`.

    Raises:
        BadRequest: The period is too long for a division by user.
    """
    within = _Range.of(period, wanted)
    if by == "user":
        [(today,)] = connection.execute(_TODAY).fetchall()
        until = within.until or today + timedelta(days=1)
        # One day more, because a period of 30 days may begin and end within a day.
        if within.since is None or until - within.since > timedelta(days=USER_DAYS + 1):
            raise BadRequest(f"Spend is divided by user for at most {USER_DAYS} days.")
    table, name, name_of = _DIVISIONS[by]
    where = within.where(project_id)
    sums = _sums_of(_SPENT)
    query = f"SELECT {name}, {sums} FROM {table} WHERE {where} AND calls > 0 GROUP BY 1"
    signed = [(1, *row) for row in connection.execute(query, where.values).fetchall()]
    for change in _changes(connection, project_id, within):
        spent = (getattr(change.part, figure) for figure in _SPENT)
        signed.append((change.sign, name_of(change), *spent))
    found: dict[str | None, SpendOf] = {}
    for sign, key, *figures in signed:
        _add(found.setdefault(key, SpendOf(name=key)), sign, figures)
    used = (each for each in found.values() if each.calls)
    in_order = sorted(used, key=lambda each: (-each.cost_usd, -each.calls, each.name or ""))
    return in_order[:MOST_ITEMS]
