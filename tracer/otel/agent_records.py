"""The records of agents: each becomes a plan of one step."""

from __future__ import annotations

from uuid import UUID

from tracer.otel.agents import Opening, Said
from tracer.otel.span_fields import lifecycle, moment, stored
from tracer.otel.spans import Span
from tracer.status import Status
from tracer.versions import Fields


def plan_fields(
    span: Span | None,
    started: int | None,
    said: Said,
    opening: Opening | None,
    depth: int | None,
    inferred_from: str | None,
) -> Fields:
    """Return the plan of an agent.

    Args:
        span: The agent's span; None for a placeholder, or where it has not come.
        started: When an agent began whose span has not come, and that is known to go on.
        said: What is said of it.
        opening: What opened it; None for the root plan, and where it is not known.
        depth: How many plans it is below the root plan; None where that is not known.
        inferred_from: By what it was inferred where it belongs; None where its span says so.
    """
    if span is not None:
        fields = lifecycle(span)
    elif started is not None:
        fields = {"status": Status.RUNNING, "started_at": moment(started)}
    else:
        fields = {"status": Status.UNKNOWN}
    if opening is not None:
        fields |= opening._asdict()
    fields["depth"] = depth
    fields["title"] = fields["agent_name"] = stored(said.name)
    fields["user_request"] = stored(said.asked)
    fields["summary"] = stored(said.answer)
    fields["inferred"] = inferred_from is not None
    fields["inferred_from"] = inferred_from
    return fields


def step_fields(span: Span | None, plan_id: UUID, said: Said) -> Fields:
    """Return the one step of an agent's plan.

    Args:
        span: The agent's span; None where it has not come.
        plan_id: The plan.
        said: What is said of the agent.
    """
    fields: Fields = {"status": Status.UNKNOWN} if span is None else lifecycle(span)
    fields["plan_id"] = plan_id
    fields["position"] = 0
    fields["agent_name"] = stored(said.name)
    fields["request"] = stored(said.asked)
    fields["result"] = stored(said.answer)
    return fields
