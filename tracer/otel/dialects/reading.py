"""Reading: what a convention says of one span, in our words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from tracer.records.prices import token_count
from tracer.text import nests_too_deep


class Role(StrEnum):
    """What a span is of a run."""

    AGENT = "agent"
    MODEL = "model"
    TOOL = "tool"
    WORKFLOW = "workflow"
    """What agents run in. It disappears, unless a tool opened it and no agent runs in it."""
    CHAIN = "chain"
    """A wrapper of an agent framework; an agent where a tool opened it and it calls tools."""
    WRAPPER = "wrapper"
    """It disappears from the tree, and its children attach through it."""


class Chosen(NamedTuple):
    """A tool call that a model's answer asks for."""

    call_id: str | None
    name: str | None
    arguments: str | None


class Reading(NamedTuple):
    """What is known of one span. Text is as it came, structures are JSON text."""

    role: Role
    name: str | None = None
    """The agent's or the tool's name."""
    agent: str | None = None
    """The name of the agent that a round or a call says it belongs to."""
    conversation: str | None = None
    subject: str | None = None
    request: str | None = None
    """What was asked: the first message of the user."""
    answer: str | None = None
    """What the agent or the model said."""
    requested_model: str | None = None
    model: str | None = None
    provider: str | None = None
    """Whose model it is, as the emitter names it."""
    messages: str | None = None
    chosen: tuple[Chosen, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    """Those of the input that the provider had in its cache."""
    cache_written_tokens: int | None = None
    """Those of the input that it put there."""
    reasoning_tokens: int | None = None
    """Those of the output that the model spent on reasoning."""
    cost_usd: Decimal | None = None
    parameters: str | None = None
    """The parameters of the request, as the text of a JSON object."""
    offered_tools: str | None = None
    """The tools that a model could choose, as `tracer.records.offered_tools` writes them."""
    finish_reasons: tuple[str, ...] = ()
    first_token_seconds: float | None = None
    """The time from the start to the first token of the answer."""
    graph_node: str | None = None
    """The node of the agent's graph that asked the model."""
    tool_type: str | None = None
    call_id: str | None = None
    arguments: str | None = None
    result: str | None = None
    tool_failed: bool = False
    """Whether the tool's answer says so itself, whatever the span's status."""
    is_denied: bool = False
    """Whether the user or a rule did not permit the tool call."""
    node: str | None = None
    """The agent's place in the graph of agents, as the emitter names it."""
    node_above: str | None = None
    """The place of the agent that handed over to it."""
    title: str | None = None
    """What its plan is called, unless a call opened it; None: the first line of the request."""
    is_placed: bool = False
    """Whether an agent's place is certain, so that no opener is inferred."""
    cancelled: str | None = None
    """The kind of cancellation, if the convention says that it was cancelled."""
    is_interrupted: bool = False
    """Whether its process ended before it did, so that its end will never arrive."""
    continues: bytes | None = None
    """The id of the span of an agent that had ended, and that this call continued."""
    follows_call_id: str | None = None
    """The provider's id of a call of an earlier run of the session, if its end caused this run."""
    awaits_round: bool = False
    """Whether the round that chose the call has not arrived, so that no other may be inferred."""
    is_mcp: bool = False
    """Whether it is the protocol's own span, which an outer tool span may repeat."""

    @property
    def tells_whose(self) -> bool:
        """Whether it says of which conversation it is, or on whose behalf."""
        return bool(self.conversation or self.subject)


WRAPPER = Reading(Role.WRAPPER)
"""What a span is that no convention knows."""

_REDACTED = "__REDACTED__"


def text(value: Any) -> str | None:
    """Return an attribute as text: a structure as JSON; nothing, and what was redacted, as None."""
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
    """Return the first of these attributes that has a value, else None."""
    get = attributes.get
    for name in names:
        value = get(name)
        if value is not None and value != "":
            return value
    return None


def first_text(attributes: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the first of these attributes that has a value, as text."""
    get = attributes.get
    for name in names:
        value = get(name)
        if value is not None and value != "":
            return text(value)
    return None


def count(value: Any) -> int | None:
    """Return a number of tokens, text and floats included; None for what cannot be one."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 19 else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < 2**63 else None
    return token_count(value)


def parsed(value: Any) -> Any:
    """Return what a text says as JSON; what is no text, or no JSON, as it is."""
    if not isinstance(value, str) or value[:1] not in ("{", "[", '"') or nests_too_deep(value):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
