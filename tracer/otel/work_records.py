"""The records of what agents do: a model's answer as a think-act, a tool span as a tool call.

`MadeRecords` remembers those, and any others of a trace, from one projection to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from tracer.masked_places import with_places
from tracer.otel.choices import LATEST_ROUND, Choice, Rounds, needs_what_was_asked
from tracer.otel.dialects.reading import Reading, Role
from tracer.otel.forest import Above, Forest
from tracer.otel.span_fields import EPOCH, RecordIds, lifecycle, moment, stored
from tracer.otel.spans import Span
from tracer.prices import TokenUsage, cost_of
from tracer.records import Kind
from tracer.status import Reason, Status
from tracer.versions import Fields


class Totals(NamedTuple):
    """What rounds and tool calls come to."""

    input_tokens: int
    output_tokens: int
    cost_usd: Decimal
    tool_calls: int
    failures: int


class Work(NamedTuple):
    """The records of what one agent did."""

    think_acts: dict[UUID, Fields]
    tool_calls: dict[UUID, Fields]
    totals: Totals


def totals_of(think_acts: Collection[Fields], tool_calls: Collection[Fields]) -> Totals:
    """Return what records come to."""
    return Totals(
        sum(each.get("input_tokens") or 0 for each in think_acts),
        sum(each.get("output_tokens") or 0 for each in think_acts),
        sum((each.get("cost_usd") or Decimal(0) for each in think_acts), Decimal(0)),
        len(tool_calls),
        sum(each["status"] is Status.FAILED for each in chain(think_acts, tool_calls)),
    )


def added_up(parts: Collection[Totals]) -> Totals:
    """Return what several totals come to."""
    return Totals(
        sum(each.input_tokens for each in parts),
        sum(each.output_tokens for each in parts),
        sum((each.cost_usd for each in parts), Decimal(0)),
        sum(each.tool_calls for each in parts),
        sum(each.failures for each in parts),
    )


class MadeRecords:
    """The records of a trace as they were made last: what has not changed is not made anew."""

    def __init__(self) -> None:
        self._ids: RecordIds | None = None
        self._work: dict[UUID, tuple[list[object] | None, Work]] = {}
        self._fields: dict[UUID, tuple[tuple[object, ...], Fields]] = {}

    def ids(self, trace_id: bytes) -> RecordIds:
        """Return the ids of the trace's records."""
        if self._ids is None:
            self._ids = RecordIds(trace_id)
        return self._ids

    def once(
        self,
        kind: Kind,
        record_id: UUID,
        holds_masks: bool,
        make: Callable[..., Fields],
        *source: object,
    ) -> Fields:
        """Return what `make` makes of the source, made anew only where that is another."""
        known = self._fields.get(record_id)
        if known is None or known[0] != source:
            made = make(*source)
            if holds_masks:
                with_places(kind, made)
            known = self._fields[record_id] = source, made
        return known[1]

    def work(
        self,
        forest: Forest,
        step_id: UUID,
        models: list[bytes],
        calls: list[bytes],
        is_same: bool | None,
    ) -> Work:
        """Return the records of what an agent did, numbered.

        Args:
            forest: The spans.
            step_id: The agent's step.
            models: Its rounds by time.
            calls: Its tool calls by time.
            is_same: Whether all of this is what it was; None: it is to be found out.
        """
        if is_same is not None:
            if not is_same or step_id not in self._work:
                self._work[step_id] = None, self._made(forest, step_id, models, calls)
            return self._work[step_id][1]
        spans, readings, places = forest.spans, forest.readings, forest.places
        # What they are made of: whether a place is a call or a round, its own reading says.
        source: list[object] = [
            (spans[each], readings[each], places[each]) for each in (*models, *calls)
        ]
        known = self._work.get(step_id)
        if known is not None and known[0] == source:
            return known[1]
        made = self._made(forest, step_id, models, calls)
        self._work[step_id] = source, made
        return made

    def keep_only(self, records: Mapping[Kind, Mapping[UUID, Fields]]) -> None:
        """Forget what was a record, and is none any more."""
        if len(self._fields) > sum(map(len, records.values())):
            there = frozenset().union(*records.values())
            self._fields = {each: known for each, known in self._fields.items() if each in there}
            self._work = {each: known for each, known in self._work.items() if each in there}

    def _made(self, forest: Forest, step_id: UUID, models: list[bytes], calls: list[bytes]) -> Work:
        spans, readings, places = forest.spans, forest.readings, forest.places
        ids = self.ids(forest.trace_id)
        think_act_ids, call_ids = ids[Kind.THINK_ACT], ids[Kind.TOOL_CALL]
        think_acts: dict[UUID, Fields] = {}
        tool_calls: dict[UUID, Fields] = {}
        for position, model in enumerate(models):
            think_act_id = think_act_ids[model]
            think_acts[think_act_id] = self.once(
                *(Kind.THINK_ACT, think_act_id, forest.holds_masks, _think_act_fields),
                *(spans[model], readings[model], step_id, position),
            )
        rounds = Rounds(forest, models)
        siblings: Counter[UUID] = Counter()
        for call in calls:
            reading = readings[call]
            above, at = places[call]
            outer = at if above is Above.SPAN and forest.role(at) is Role.TOOL else None
            is_chosen = outer is None and reading.tool_type in (None, "MCP")
            choice = rounds.choice(call) if is_chosen else None
            links = _Links(
                step_id,
                think_act_ids[choice.model] if choice is not None else None,
                call_ids[outer] if outer is not None else None,
            )
            parent = links.parent_tool_call_id or links.think_act_id or step_id
            position = siblings[parent]
            siblings[parent] += 1
            call_id = call_ids[call]
            tool_calls[call_id] = self.once(
                *(Kind.TOOL_CALL, call_id, forest.holds_masks, _tool_call_fields),
                *(spans[call], reading, choice, links, position),
            )
        totals = totals_of(think_acts.values(), tool_calls.values())
        return Work(think_acts, tool_calls, totals)


class _Links(NamedTuple):
    """What a tool call hangs under."""

    step_id: UUID
    think_act_id: UUID | None
    parent_tool_call_id: UUID | None


def _think_act_fields(span: Span, reading: Reading, step_id: UUID, position: int) -> Fields:
    """Return the think-act that a model's span becomes."""
    fields = lifecycle(span, Reason.MODEL_ERROR)
    fields["step_id"] = step_id
    fields["position"] = position
    fields["requested_model"] = stored(reading.requested_model or reading.model)
    fields["model"] = stored(reading.model)
    fields["messages"] = stored(reading.messages)
    fields["thought"] = stored(reading.answer)
    fields["input_tokens"] = reading.input_tokens
    fields["output_tokens"] = reading.output_tokens
    cost = reading.cost_usd
    fields["cost_usd"] = cost if cost is not None else _price(reading, span)
    return fields


def _price(reading: Reading, span: Span) -> Decimal | None:
    """Return what an answer costs whose spans say nothing of it."""
    model = reading.model or reading.requested_model
    if model is None or reading.input_tokens is None or reading.output_tokens is None:
        return None
    usage = TokenUsage(
        reading.input_tokens,
        reading.output_tokens,
        reading.cache_read_tokens or 0,
        reading.cache_written_tokens or 0,
    )
    # By the span's own time: the same spans must cost the same tomorrow.
    at = moment(span.start) or EPOCH
    return cost_of(usage, model, provider=reading.provider, at=at)


def _tool_call_fields(
    span: Span, reading: Reading, choice: Choice | None, links: _Links, position: int
) -> Fields:
    """Return the tool call that a tool's span becomes.

    Args:
        span: The tool's span.
        reading: What it is.
        choice: The round that chose it; what that asked for fills in what the span leaves out.
        links: What it hangs under.
        position: Its place there.
    """
    asked = choice.asked if choice is not None else None
    arguments = reading.arguments
    if asked is not None and asked.arguments is not None and needs_what_was_asked(arguments):
        arguments = asked.arguments
    inferred = choice is not None and choice.inferred
    fields = lifecycle(span, Reason.TOOL_ERROR, reading.tool_failed)
    fields["step_id"], fields["think_act_id"], fields["parent_tool_call_id"] = links
    fields["position"] = position
    fields["provider_call_id"] = stored(reading.call_id or (asked.call_id if asked else None))
    fields["name"] = stored(reading.name)
    fields["tool_type"] = reading.tool_type
    fields["arguments"] = stored(arguments)
    fields["result"] = stored(reading.result)
    fields["inferred"] = inferred
    fields["inferred_from"] = LATEST_ROUND if inferred else None
    if fields["status"] is Status.FAILED and fields.get("error_message") is None:
        fields["error_message"] = fields["result"]
    return fields
