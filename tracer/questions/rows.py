"""Answers about rows: lists of runs, one record, statistics, and the comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from msgspec import Struct, convert
from msgspec.structs import replace

from tracer.errors import BadRequest
from tracer.lineage.diff import Change, Comparison, Difference, RecordPair
from tracer.lineage.tree import TreeTotals
from tracer.questions.outline import WORDS, ended
from tracer.questions.text import (
    block,
    budget_bytes,
    cost,
    counted,
    duration,
    handle,
    joined,
    moment,
    name,
    quoted,
    tokens,
    within,
)
from tracer.records import Kind
from tracer.records.merge import RULES
from tracer.records.pages import FoundPlace, RunPreview, label_of
from tracer.records.record_classes import Record

# --- Lists of runs.


class RunLine(Struct, rename="camel"):
    """A run of a list."""

    root_plan_id: str
    handle: str
    at: datetime | None
    status: str
    reason: str | None
    agent: str | None
    duration_ms: float | None
    totals: TreeTotals
    request: str | None
    answer: str | None
    failure: str | None
    """The record at which its failure began, as text."""
    found: str | None
    """The record and the text in which a search found words."""

    def line(self) -> str:
        """Return the run as one line."""
        outcome = self.failure or (quoted(self.answer, 80) if self.answer else "")
        return joined(
            self.handle,
            moment(self.at),
            ended(self.status, self.reason).upper() if self.status != "succeeded" else "",
            duration(self.duration_ms),
            cost(self.totals.cost_usd),
            name(self.agent) if self.agent else "",
            quoted(self.request, 80),
            outcome and f"→ {outcome}",
            f"found in {self.found}" if self.found else "",
        )


class Runs(Struct, rename="camel"):
    """A list of runs."""

    items: list[RunLine]
    next_cursor: str | None
    budget: int

    def text(self) -> str:
        """Return the list as text."""
        lines = [each.line() for each in self.items] or ["No run matches."]
        if self.next_cursor is not None:
            lines.append("More runs match: narrow the question, or raise limit and budget.")
        return within(lines, budget_bytes(self.budget))


def runs(items: Iterable[RunPreview], next_cursor: str | None, budget: int) -> Runs:
    """Return the answer to `list`."""
    return Runs([_run_line(each) for each in items], next_cursor, budget)


def _run_line(run: RunPreview) -> RunLine:
    failure = run.failure
    known = run.known_cost
    taken = run.finished_at and run.started_at and run.finished_at - run.started_at
    return RunLine(
        root_plan_id=str(run.root_plan_id),
        handle=handle(run.root_plan_id),
        at=run.started_at or run.recorded_at,
        status=run.shown_status,
        reason=run.reason,
        agent=run.agent_name,
        duration_ms=taken.total_seconds() * 1000 if taken else None,
        totals=replace(
            convert(run, TreeTotals, from_attributes=True),
            cost_usd=None if known is None else float(known),
        ),
        request=label_of(run.request) or run.label,
        answer=run.answer,
        failure=None
        if failure is None
        else joined(
            WORDS[failure.kind],
            handle(failure.id),
            name(failure.name),
            quoted(": ".join(filter(None, (failure.error_type, failure.error_message))), 100),
        ),
        found=next(map(_place, run.found.places), None) if run.found else None,
    )


def _place(place: FoundPlace) -> str:
    snippet = "".join(part.text for part in place.snippet)
    return joined(WORDS[place.kind], handle(place.id), name(place.field), quoted(snippet, 120))


# --- One record.


class RecordAnswer(Struct, rename="camel"):
    """A record, or a slice of one of its values."""

    kind: str
    id: str
    handle: str
    root_plan_id: str
    pointer: str
    value: Any
    """The record's fields, or the value at the pointer."""
    size: int | None
    """The length of the text that was sliced, in characters."""
    budget: int

    def text(self) -> str:
        """Return the record as text."""
        most = budget_bytes(self.budget)
        of_run = f"of run {handle(self.root_plan_id)}"
        lines = [joined(WORDS.get(Kind(self.kind), self.kind), self.handle, "id", self.id, of_run)]
        if not self.pointer:
            lines += self._fields(most - len(lines[0].encode()) - 100)
        else:
            where = f"{quoted(self.pointer)} of {self.size:,} characters:"
            lines += [where, *block(self.value, most - 100 - len(where.encode()))]
        return within(lines, most)

    def _fields(self, room: int) -> Iterator[str]:
        values = {key: _as_text(value) for key, value in self.value.items()}
        long = {key: value for key, value in values.items() if len(value) > 100 or "\n" in value}
        short = [
            f"{key}: {quoted(value) if isinstance(value, str) else _as_text(value)}"
            for key, value in self.value.items()
            if key not in long
        ]
        yield from short
        room -= sum(len(line.encode()) + 1 for line in short)
        for position, (key, value) in enumerate(sorted(long.items(), key=lambda e: len(e[1]))):
            share = max(0, room // (len(long) - position) - len(key) - 12)
            lines = block(value, share)
            yield f"/{key} ({len(value):,} characters):"
            yield from lines
            room -= sum(len(line.encode()) + 1 for line in lines) + len(key) + 30


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def record(
    found: Record, kind: Kind, pointer: str, start: int, length: int | None, budget: int
) -> RecordAnswer:
    """Return the answer to `record`.

    Args:
        found: The complete record.
        kind: Its kind.
        pointer: A JSON pointer (RFC 6901). It begins with a field of the record, and continues in
            the JSON of this field: `/result/items/0`. If it is empty, all fields are returned.
        start: The first character of the slice of the value.
        length: The number of characters of the slice; None: all that fit.
        budget: The number of tokens of the text.

    Raises:
        BadRequest: The record has no such value.
    """
    fields = found.model_dump(mode="json", exclude_none=True)
    given = {key: value for key, value in fields.items() if value not in ([], "", False)}
    value: Any = given
    for part in pointer.split("/")[1:]:
        value = _inside(value, part.replace("~1", "/").replace("~0", "~"))
    size = None
    if pointer:
        text = _as_text(value)
        size = len(text)
        value = text[start : None if length is None else start + length]
    record_id = str(getattr(found, RULES[kind].id_field))
    return RecordAnswer(
        kind=str(kind),
        id=record_id,
        handle=handle(record_id),
        root_plan_id=str(found.root_plan_id),
        pointer=pointer,
        value=value,
        size=size,
        budget=budget,
    )


def _inside(value: Any, part: str) -> Any:
    try:
        if isinstance(value, str):
            value = orjson.loads(value)
        return value[int(part)] if isinstance(value, list) else value[part]
    except (ValueError, LookupError, TypeError):
        has = ", ".join(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        message = f"The pointer leads nowhere at {part[:50]!r}. There is: {has[:500]}."
        raise BadRequest(message) from None


# --- Statistics.


class ToolLine(Struct, rename="camel"):
    """The calls of a tool."""

    name: str
    calls: int
    failed: int
    abandoned: int
    p50_ms: float | None
    p95_ms: float | None


class SpendLine(Struct, rename="camel"):
    """The use and the cost of the model calls of one model, agent, user or day."""

    name: str | None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unpriced_calls: int


class StatsAnswer(Struct, rename="camel"):
    """The calls of each tool, or the spend of each model, agent, user or day."""

    by: str
    since: datetime | None
    tools: list[ToolLine]
    spend: list[SpendLine]
    budget: int

    def text(self) -> str:
        """Return the statistics as text."""
        since = f"since {moment(self.since)}" if self.since else "of all time"
        if self.by == "tool":
            rows: list[tuple[str, ...]] = [("tool", "calls", "failed", "abandoned", "p50", "p95")]
            rows += [
                (
                    name(each.name),
                    f"{each.calls:,}",
                    f"{each.failed:,}",
                    f"{each.abandoned:,}",
                    duration(each.p50_ms),
                    duration(each.p95_ms),
                )
                for each in sorted(self.tools, key=lambda each: (-each.failed, -each.calls))
            ]
        else:
            rows = [(self.by, "model calls", "tokens", "cost", "of unknown cost")]
            rows += [
                (
                    name(each.name) if each.name else "(none)",
                    f"{each.calls:,}",
                    tokens(each.input_tokens, each.output_tokens),
                    cost(each.cost_usd) or "$0",
                    f"{each.unpriced_calls:,}" if each.unpriced_calls else "",
                )
                for each in self.spend
            ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        if not lines[1:]:
            lines = ["No call was made in this time."]
        return within([f"{self.by} {since}", *lines], budget_bytes(self.budget))


def stats(by: str, since: datetime | None, rows: Sequence[Any], budget: int) -> StatsAnswer:
    """Return the answer to `stats`. Each row is a `ToolStats`, or a `Spend` unless `by` is tool."""
    is_tool = by == "tool"
    tools = convert(rows if is_tool else (), list[ToolLine], from_attributes=True)
    spend = convert(() if is_tool else rows, list[SpendLine], from_attributes=True)
    return StatsAnswer(by, since, tools, spend, budget)


# --- The comparison of two runs.

SAME = "The runs are the same."

_MEASURED = {Difference.DURATION, Difference.TOKENS, Difference.COST, Difference.MESSAGES}
"""Differences that two runs of the same work usually have."""


class DifferenceLine(Struct, rename="camel"):
    """A pair of records that differs."""

    change: str
    kind: str
    level: int
    name: str | None
    left: str | None
    right: str | None
    differs: list[str]
    text: str


class Differences(Struct, rename="camel"):
    """How the right run differs from the left run."""

    left: str
    right: str
    differs: bool
    first: DifferenceLine | None
    """The first difference in the order of the tree."""
    lines: list[DifferenceLine]
    counts: dict[str, int]
    totals: list[str]
    budget: int

    def text(self) -> str:
        """Return the differences as text."""
        lines = [SAME]
        if self.first is not None:
            lines = ["first difference:", f" {self.first.text}"]
            lines += (" " * min(each.level, 12) + each.text for each in self.lines[1:])
        most = budget_bytes(self.budget)
        end = [", ".join(f"{count:,} {change}" for change, count in self.counts.items())]
        tail = "\n".join([*end, *self.totals]) + "\n"
        return within(lines, most - len(tail.encode())) + tail


def differences(compared: Comparison, budget: int) -> Differences:
    """Return the answer to `diff`."""
    lines: list[DifferenceLine] = []
    stack = [(compared["root"], 0)]
    while stack:
        pair, level = stack.pop()
        is_alone = pair["change"] in (Change.ADDED, Change.REMOVED)
        if is_alone or set(pair["differs"]) - _MEASURED:
            lines.append(_difference(pair, level))
        if not is_alone:  # otherwise, all records below it are alone, too
            stack += [(child, level + 1) for child in pair["children"][::-1]]
    sides = {"left": compared["left"], "right": compared["right"]}
    return Differences(
        left=sides["left"]["rootPlanId"],
        right=sides["right"]["rootPlanId"],
        differs=bool(lines),
        first=lines[0] if lines else None,
        lines=lines,
        counts={str(change): count for change, count in compared["counts"].items()},  # type: ignore[misc]
        totals=[
            joined(
                f"{side} {handle(run['rootPlanId'])}",
                run["status"],
                duration(run["durationMs"]),
                counted(run["totals"].tool_calls, "call"),
                tokens(run["totals"].input_tokens, run["totals"].output_tokens),
                cost(run["totals"].cost_usd),
            )
            for side, run in sides.items()
        ],
        budget=budget,
    )


_SIGNS = {Change.ADDED: "+", Change.REMOVED: "-", Change.CHANGED: "~", Change.SAME: "="}


def _difference(pair: RecordPair, level: int) -> DifferenceLine:
    left, right = pair["left"], pair["right"]
    ids = [each["id"] for each in (left, right) if each is not None]
    differs = [str(each) for each in pair["differs"] if each not in _MEASURED]
    below = pair["changedBelow"] if None in (left, right) else 0  # all below it are, too
    outcomes = [ended(each["status"], each["reason"]) for each in (left, right) if each]
    return DifferenceLine(
        change=str(pair["change"]),
        kind=str(pair["kind"]),
        level=level,
        name=pair["name"],
        left=left["id"] if left else None,
        right=right["id"] if right else None,
        differs=differs,
        text=joined(
            _SIGNS[pair["change"]],
            WORDS[Kind(pair["kind"])],
            "/".join(map(handle, ids)),
            name(pair["name"]),
            f"differs in {', '.join(differs)}" if differs else "",
            " → ".join(outcomes) if "outcome" in differs else "",
            f"with {counted(below, 'record')} below" if below else "",
        ),
    )
