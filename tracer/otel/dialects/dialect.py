"""A dialect: how one convention states facts about agents, models and tools in its spans.

`SpanFacts` contains the facts that a dialect reads from a span. `RunSpans` gives some dialects all
spans of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from tracer.records.prices import token_count
from tracer.records.spans import Attributes, LogRecord, ReadableSpan, SpanEvent

if TYPE_CHECKING:
    from tracer.otel.dialects.session import Session

# --- `SpanFacts`: the role and the fields of a span, in one form for all conventions.


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


class SpanFacts(Struct, frozen=True, gc=False):
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
    is_provider_chosen: bool = False
    """Whether the user chose the provider's name, so that it may be a reseller."""
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
    """The tools that a model could choose, as `tracer.records.arguments` writes them."""
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
    failure: str | None = None
    """The message of a failed tool call, if the span's status has none. If None, the result is the
    message."""
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
    follows_agent: str | None = None
    """The emitter's id of an agent of an earlier run that caused this run when it ended."""
    sequence: int | None = None
    """The emitter's number of an event of the session. For an agent: the event that started the
    run. For a tool call: the event that reported the end of the background agent that it started.
    """
    number: int | None = None
    """The emitter's number of an agent's prompt, among the prompts of its session and process."""
    agent_key: str | None = None
    """The emitter's id of the agent that a tool call set to work."""
    work_key: str | None = None
    """The emitter's id of the piece of work that the span is a part of. Runs with the same key are
    parts of it."""
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

    def _replace(self, **changes: Any) -> SpanFacts:
        return replace(self, **changes)


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
    for name in names:
        if name in attributes:
            value = attributes[name]
            if value is not None and value != "":
                return value
    return None


def first_text(attributes: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the value of the first named attribute that is not empty, converted by `text`."""
    value = first(attributes, names)
    return text(value) if value is not None else None


def count(value: Any) -> int | None:
    """Return a token count from an integer, a float or text; None if the value is no count."""
    if value is None:
        return None
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 19 else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < 2**63 else None
    return token_count(value)


# --- `SlimSpan`: a span of a run, linked to its parent and annotated by its dialect.


@dataclass(slots=True, eq=False)
class SlimSpan:
    """One span of a run. Times are nanoseconds since 1970; an `end` of 0 means no end yet.

    The projection sets the fields with defaults, step by step, in the order in which they are
    listed.
    """

    span_id: bytes
    parent_span_id: bytes | None
    start: int
    end: int
    name: str
    scope: str
    status_code: int
    status_message: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    is_parent_local: bool | None = None
    """Whether the parent is in the same process, according to the span's flags; None: unknown."""
    continues: tuple[tuple[bytes, bytes], ...] = ()
    """The trace ids and span ids of its links that have the attribute `tracer.continues`."""
    readers: tuple[Dialect, ...] = ()
    """The dialects that read the span, before the GenAI conventions do."""
    parent: SlimSpan | None = None
    """The parent of the span, if it has arrived. Cycles of parents are broken."""
    missing_parent: bytes | None = None
    """The id of the parent, if the parent has not arrived."""
    inferred: str | None = None
    """The evidence, if the parent was inferred. None if span ids identify the parent."""
    shift: int = 0
    """The nanoseconds that were added to the recorded times, because the clock of the span's
    process disagreed with that of its caller."""
    facts: SpanFacts = WRAPPER
    """The fields that the dialect read from the span. They change when spans are merged."""
    above: SlimSpan | None = None
    """The nearest agent, model call or tool call above the span."""
    awaits: bytes | None = None
    """If no such ancestor is known because a span above has not arrived, the id of this missing
    span. Otherwise None."""
    merged_into: SlimSpan | None = None
    """The span that this span was merged into, if both describe the same work."""
    record_id: bytes = field(default=b"")
    """The id of the think-act or tool call that the span becomes."""
    lasting_id: bytes | None = None
    """The id from which the ids of the span's records are derived, instead of `span_id`. It is set
    if log records describe the same work under another id. The records then keep their ids when the
    span arrives."""

    @property
    def identity(self) -> bytes:
        """The id from which the ids of this span's records are derived."""
        return self.lasting_id or self.span_id

    @property
    def order(self) -> tuple[int, bytes]:
        """The sort key of spans: start and id."""
        return self.start, self.span_id

    def contradicts(self, parent: SlimSpan) -> bool:
        """Return whether a call with these times cannot have been within its caller's time."""
        if not self.start or not parent.start:
            return False
        if self.start < parent.start:
            return True
        if not self.end or not parent.end or self.end <= parent.end:
            return False
        return self.end - self.start <= parent.end - parent.start


def synthetic_span(
    span_id: bytes, name: str, scope: str, times: tuple[int, int], facts: SpanFacts
) -> SlimSpan:
    """Return a span for work of which no span has arrived, without a parent."""
    return SlimSpan(
        span_id=span_id,
        parent_span_id=None,
        start=times[0],
        end=times[1],
        name=name,
        scope=scope,
        status_code=0,
        status_message="",
        attributes={},
        events=(),
        facts=facts,
    )


def cut_circles(suspects: Iterable[SlimSpan]) -> None:
    """Break each cycle of parent links that contains one of the given spans.

    In each cycle, the span with the least id loses its parent.
    """
    done: set[SlimSpan] = set()
    for suspect in suspects:
        way: dict[SlimSpan, None] = {}
        at: SlimSpan | None = suspect
        while at is not None and at not in done and at not in way:
            way[at] = None
            at = at.parent
        if at is not None and at in way:
            climbed = list(way)
            min(climbed[climbed.index(at) :], key=lambda span: span.span_id).parent = None
        done.update(way)


# --- Make the token counts of all emitters mean the same: a total includes its parts.
#
# Some emitters count cached, written and reasoning tokens inside the total, others beside it. The
# counts of a span often prove which. If they do not, the other spans of the same scope and provider
# in the run decide; without any proof, the total is assumed to include its parts, as the GenAI
# conventions say.

_COUNTED = (Role.MODEL, Role.AGENT)


class _Counting(NamedTuple):
    """Whether an emitter counts parts inside the total. None: the counts do not prove it."""

    is_input_whole: bool | None
    is_output_whole: bool | None


def include_parts(spans: Iterable[SlimSpan]) -> None:
    """Add cached, written and reasoning tokens to the totals that do not include them."""
    proofs: dict[tuple[str, str | None], set[_Counting]] = {}
    counted: list[tuple[SlimSpan, _Counting]] = []
    for span in spans:
        facts = span.facts
        if facts.role in _COUNTED and _has_parts(facts):
            counting = _counting(facts)
            counted.append((span, counting))
            proofs.setdefault((span.scope, facts.provider), set()).add(counting)
    for span, own in counted:
        others = proofs[span.scope, span.facts.provider]
        span.facts = _whole(
            span.facts,
            _agreed(own.is_input_whole, {each.is_input_whole for each in others}),
            _agreed(own.is_output_whole, {each.is_output_whole for each in others}),
        )


def _has_parts(facts: SpanFacts) -> bool:
    return bool(facts.cache_read_tokens or facts.cache_written_tokens or facts.reasoning_tokens)


def _agreed(own: bool | None, others: set[bool | None]) -> bool:
    if own is not None:
        return own
    proven = others - {None}
    return proven != {False}


def _counting(facts: SpanFacts) -> _Counting:
    """Return what the counts of a span prove: no part is larger than its whole, and sums match."""
    cached = (facts.cache_read_tokens or 0) + (facts.cache_written_tokens or 0)
    reasoning = facts.reasoning_tokens or 0
    wholes = facts.input_tokens or 0, facts.output_tokens or 0
    fits = [
        _Counting(is_input_whole, is_output_whole)
        for is_input_whole in (True, False)
        for is_output_whole in (True, False)
        if (not is_input_whole or cached <= wholes[0])
        and (not is_output_whole or reasoning <= wholes[1])
    ]
    total = facts.total_tokens
    matching = [
        each
        for each in fits
        if total == sum(wholes) + cached * (not each[0]) + reasoning * (not each[1])
    ]
    left = matching or fits
    inputs, outputs = {each[0] for each in left}, {each[1] for each in left}
    return _Counting(
        inputs.pop() if cached and len(inputs) == 1 else None,
        outputs.pop() if reasoning and len(outputs) == 1 else None,
    )


def _whole(facts: SpanFacts, is_input_whole: bool, is_output_whole: bool) -> SpanFacts:
    cached = (facts.cache_read_tokens or 0) + (facts.cache_written_tokens or 0)
    if not is_input_whole and facts.input_tokens is not None:
        facts = facts._replace(input_tokens=facts.input_tokens + cached)
    if not is_output_whole and facts.output_tokens is not None:
        facts = facts._replace(output_tokens=facts.output_tokens + (facts.reasoning_tokens or 0))
    return facts


# --- `Dialect`: what a module declares so that Tracer reads the spans of a convention.

CompleteRun = Callable[[list[SlimSpan], list[LogRecord]], list[SlimSpan]]


class PendingSpans(NamedTuple):
    """How a dialect recognizes spans that announce other spans before they end."""

    is_pending: Callable[[ReadableSpan], bool]
    """Returns whether a span announces its parent, and is no span of its own."""
    announced_parent: Callable[[ReadableSpan], bytes | None]
    """Returns the parent id of the announced span; None for a root span."""


@dataclass(frozen=True, eq=False)
class Dialect:
    """The reader of one convention. Each dialect module assigns an instance to `DIALECT`."""

    title: str
    order: int
    """If the attributes of a span mark several dialects, the one with the least order reads it."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, Any])
    """The names of the attributes that the dialect reads. The key is the field of `SpanFacts` that
    the attributes fill, or a key of `USES`. A name that ends with `*` is a prefix of names."""
    scopes: tuple[str, ...] = ()
    """The names of the instrumentation scopes that this dialect reads. A name that ends with `*` is
    a prefix of names."""
    marks: tuple[str, ...] = ()
    """Attributes that only spans of this convention have. If the dialect of a span's scope does not
    recognize the span, or there is none, the marks decide."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, Any])
    """The convention's own names for attributes of the GenAI conventions. In a dialect without
    `read`, this table and `operations` are all that the GenAI reader needs."""
    kind: str | None = None
    """The attribute whose value is a key of `operations`; None: the span's name is the key."""
    operations: Mapping[str, str] = field(default_factory=dict[str, Any])
    """The operation of the GenAI conventions (`gen_ai.operation.name`) by the span's kind. A kind
    that ends with `*` is a prefix of kinds; the rest of the kind is the name of the agent or tool.
    """
    read: Callable[[ReadableSpan], SpanFacts | None] | None = None
    """Returns the facts of a span of this convention; None for other spans."""
    read_with_parent: Callable[[ReadableSpan, ReadableSpan | None], SpanFacts | None] | None = None
    """Replaces `read` in dialects that also need the parent. The parent is passed only for spans
    that `reads_parent` accepts."""
    reads_parent: Callable[[ReadableSpan], bool] | None = None
    complete: CompleteRun | None = None
    """Adds spans and facts that only the whole run and its log records show. See `complete_run`. It
    is called for runs with one of the `scopes`."""
    session: Session | None = None
    """How the spans and log records of one of the `scopes` describe sessions of a coding agent. It
    replaces `complete`."""
    pending: PendingSpans | None = None
    """Recognizes the pending spans of the convention; None: it has none."""
    sessions: Mapping[str, str] = field(default_factory=dict[str, Any])
    """The attribute of a log record that contains its session, by prefix of the scope's name. It is
    needed only for emitters whose log records may lack a trace id."""

    @property
    def is_table(self) -> bool:
        """Whether the dialect has only names, and the GenAI reader reads its spans."""
        return bool(self.names or self.operations)

    def claims(self, scope: str) -> bool:
        """Return whether `scope` is one of the dialect's scopes."""
        return any(
            scope.startswith(each[:-1]) if each.endswith("*") else scope == each
            for each in self.scopes
        )

    def translated(self, span: ReadableSpan) -> ReadableSpan:
        """Return a span as the GenAI conventions would write it, by `names` and `operations`."""
        attributes = dict(span.attributes)
        for name, own_names in self.names.items():
            if (value := first(span.attributes, own_names)) is not None:
                attributes[name] = value
        name = span.name
        kind = str(name if self.kind is None else span.attributes.get(self.kind))
        for own, operation in self.operations.items():
            if own == kind:
                attributes["gen_ai.operation.name"] = operation
            elif own.endswith("*") and kind.startswith(own[:-1]):
                attributes["gen_ai.operation.name"] = operation
                name = f"{operation} {kind.removeprefix(own[:-1])}"
        return _Translated(
            parent_span_id=span.parent_span_id,
            start=span.start,
            name=name,
            scope=span.scope,
            attributes=attributes,
            events=span.events,
            status_message=span.status_message,
        )


class _Translated(NamedTuple):
    parent_span_id: bytes | None
    start: int
    name: str
    scope: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    status_message: str


USES = {
    "role": "whether the span is an agent, a model call, a tool call or a wrapper",
    "links": "joins spans and log records of one run",
    "status": "the status of the record",
    "times": "the start or the end of the record",
    "spans": "which spans are pending, or are no spans",
    "shown": "no field: stored with the span, and shown with it",
}
"""The uses of attributes that fill no field of `SpanFacts`. `docs/reference/attributes.md` contains
these texts."""
