"""`SpanFacts`: the role and the fields of a span, in one form for all conventions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from tracer.records.prices import token_count


class Role(StrEnum):
    """What a span represents in a run."""

    AGENT = "agent"
    MODEL = "model"
    TOOL = "tool"
    WORKFLOW = "workflow"
    """A span around agents, without a record. If a tool started it, and it contains a model call
    but no agent, it becomes an agent."""
    CHAIN = "chain"
    """A wrapper of an agent framework. If a tool started it, and it contains a model call and a
    tool call but no agent, it becomes an agent."""
    WRAPPER = "wrapper"
    """A span without a record. Its children become children of its parent."""


class RequestedCall(NamedTuple):
    """A tool call that a model's answer requests."""

    call_id: str | None
    name: str | None
    arguments: str | None


class ExecutedCall(NamedTuple):
    """A tool call that the model's provider executed itself. It has no span of its own."""

    call_id: str | None
    name: str | None
    arguments: str | None
    result: str | None = None


class SpanFacts(NamedTuple):
    """The fields that a dialect read from one span. Structured values are stored as JSON text."""

    role: Role
    name: str | None = None
    """The agent's or the tool's name."""
    agent: str | None = None
    """The name of the agent that made a model call or tool call, according to the call's span."""
    conversation: str | None = None
    subject: str | None = None
    request: str | None = None
    """The first message of the user."""
    answer: str | None = None
    """The text of the agent's or the model's answer."""
    reasoning: str | None = None
    """The text of the model's reasoning that precedes its answer."""
    executed: tuple[ExecutedCall, ...] = ()
    """The tool calls that the provider executed while the model answered."""
    requested_model: str | None = None
    model: str | None = None
    provider: str | None = None
    """The provider of the model, as the emitter names it."""
    messages: str | None = None
    chosen: tuple[RequestedCall, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    """The input tokens that the provider read from its cache."""
    cache_written_tokens: int | None = None
    """The input tokens that the provider wrote to its cache."""
    reasoning_tokens: int | None = None
    """The output tokens that the model spent on reasoning."""
    cache_written_hour_tokens: int | None = None
    """Those of `cache_written_tokens` that the provider caches for an hour."""
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    total_tokens: int | None = None
    """The sum of all tokens, as the emitter reports it."""
    service_tier: str | None = None
    """The provider's service tier, such as `flex`, which determines the price."""
    cost_usd: Decimal | None = None
    parameters: str | None = None
    """The parameters of the request, as the text of a JSON object."""
    offered_tools: str | None = None
    """The tools that a model could choose, as `tracer.records.offered_tools` writes them."""
    finish_reasons: tuple[str, ...] = ()
    first_token_seconds: float | None = None
    """The time from the start to the first token of the answer."""
    graph_node: str | None = None
    """The node of the agent's graph that called the model."""
    tool_type: str | None = None
    call_id: str | None = None
    arguments: str | None = None
    result: str | None = None
    has_failed: bool = False
    """Whether the tool or the model failed, even if the span's status is not an error."""
    is_denied: bool = False
    """Whether the user or a rule did not permit the tool call."""
    node: str | None = None
    """The agent's node in the emitter's graph of agents."""
    node_above: str | None = None
    """The node of the agent that handed over to this agent."""
    title: str | None = None
    """The title of an agent's plan, if no tool call started the agent. If None, the title is the
    first line of the request."""
    is_placed: bool = False
    """Whether the parent of an agent is certain. If so, no other parent is inferred."""
    cancelled: str | None = None
    """The kind of cancellation; None if the convention states none."""
    is_interrupted: bool = False
    """Whether the emitter's process ended before the work did. The end will never arrive."""
    continues: bytes | None = None
    """The span id of an earlier agent that this tool call continued."""
    follows_call_id: str | None = None
    """The provider call id of an earlier run's tool call that caused this run when it ended."""
    awaits_round: bool = False
    """Whether the model call that chose this tool call has not arrived. If so, no other model call
    is inferred."""
    transfer_target: str | None = None
    """The name of the agent to which a tool call transfers control."""
    caller: str | None = None
    """The name of the agent or workflow that invoked this agent, according to the span."""
    is_assumed: bool = False
    """Whether the role follows from the names and counts of the span, because its operation is
    unknown. The spans around and below it may contradict."""
    is_mcp: bool = False
    """Whether the span follows the MCP conventions. A tool span around it may describe the same
    call."""


WRAPPER = SpanFacts(Role.WRAPPER)
"""The facts of a span that no dialect recognizes."""

_REDACTED = "__REDACTED__"


def text(value: Any) -> str | None:
    """Return an attribute's value as text, with structures as JSON.

    Returns None for null and for the placeholder `__REDACTED__`.
    """
    if isinstance(value, str):
        return value if value != _REDACTED else None
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError):
        return str(value)


def first(attributes: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the value of the first named attribute that is not empty; None if all are empty."""
    get = attributes.get
    for name in names:
        value = get(name)
        if value is not None and value != "":
            return value
    return None


def first_text(attributes: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the value of the first named attribute that is not empty, converted by `text`."""
    get = attributes.get
    for name in names:
        value = get(name)
        if value is not None and value != "":
            return text(value)
    return None


def count(value: Any) -> int | None:
    """Return a token count from an integer, a float or text; None if the value is no count."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 19 else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < 2**63 else None
    return token_count(value)
