"""The records of what agents do: a model's answer as a think-act, a tool span as a tool call."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from tracer.otel.choices import LATEST_ROUND, Choice
from tracer.otel.dialects.reading import Reading
from tracer.otel.forest import Forest
from tracer.otel.span_fields import EPOCH, RecordIds, lifecycle, moment, stored
from tracer.otel.spans import Span
from tracer.prices import TokenUsage, cost_of
from tracer.records import Kind
from tracer.status import Reason, Status
from tracer.versions import Fields


def think_act_fields(forest: Forest, span_id: bytes, step_id: UUID) -> Fields:
    """Return the think-act that a model's span becomes."""
    reading, span = forest.readings[span_id], forest.spans[span_id]
    return {
        **lifecycle(span, Reason.MODEL_ERROR),
        "step_id": step_id,
        "requested_model": stored(reading.requested_model or reading.model),
        "model": stored(reading.model),
        "messages": stored(reading.messages),
        "thought": stored(reading.answer),
        "input_tokens": reading.input_tokens,
        "output_tokens": reading.output_tokens,
        "cost_usd": reading.cost_usd if reading.cost_usd is not None else _price(reading, span),
    }


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


def tool_call_fields(
    forest: Forest,
    ids: RecordIds,
    span_id: bytes,
    step_id: UUID,
    choice: Choice | None,
    outer: bytes | None,
) -> Fields:
    """Return the tool call that a tool's span becomes.

    Args:
        forest: The spans.
        ids: Their records' ids.
        span_id: The tool's span.
        step_id: The step that made the call.
        choice: The round that chose it; what that asked for fills in what the span leaves out.
        outer: The span of the tool call that made it, where one did.
    """
    reading = forest.readings[span_id]
    asked = choice.asked if choice is not None else None
    arguments = reading.arguments
    if asked is not None and asked.arguments is not None:
        is_bare = arguments is None or arguments[:1] != "{"
        arguments = asked.arguments if is_bare else arguments
    inferred = choice is not None and choice.inferred
    fields: Fields = {
        **lifecycle(forest.spans[span_id], Reason.TOOL_ERROR, reading.tool_failed),
        "step_id": step_id,
        "think_act_id": ids(Kind.THINK_ACT, choice.model) if choice is not None else None,
        "parent_tool_call_id": ids(Kind.TOOL_CALL, outer) if outer is not None else None,
        "provider_call_id": stored(reading.call_id or (asked.call_id if asked else None)),
        "name": stored(reading.name),
        "tool_type": reading.tool_type,
        "arguments": stored(arguments),
        "result": stored(reading.result),
        "inferred": inferred,
        "evidence": LATEST_ROUND if inferred else None,
    }
    if fields["status"] is Status.FAILED and fields.get("error_message") is None:
        fields["error_message"] = fields["result"]
    return fields
