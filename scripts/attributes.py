"""Write the page of the attributes that the dialects read: `make attributes`."""

from __future__ import annotations

from pathlib import Path

from tracer.otel.dialects import DIALECTS
from tracer.otel.dialects.dialect import USES, Dialect, SpanFacts

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "attributes.md"

FIELDS = {
    "name": "plan and step `agent_name`; tool call `name`",
    "agent": "plan and step `agent_name`, if the agent's own span has not arrived",
    "conversation": "run `session_id`",
    "subject": "run `subject`",
    "request": "plan `user_request`, step `request`",
    "answer": "plan `summary`, step `result`, think-act `thought`",
    "requested_model": "think-act `requested_model`",
    "model": "think-act `model`, and its price",
    "provider": "think-act `provider`, and its price",
    "messages": "think-act `messages`",
    "chosen": "the think-act that each tool call belongs to",
    "input_tokens": "think-act `input_tokens`, and the cost",
    "output_tokens": "think-act `output_tokens`, and the cost",
    "cache_read_tokens": "think-act `cache_read_tokens`, and the cost",
    "cache_written_tokens": "think-act `cache_written_tokens`, and the cost",
    "reasoning_tokens": "think-act `reasoning_tokens`, and the cost",
    "cost_usd": "think-act `cost_usd`; without it, the cost is computed",
    "parameters": "think-act `parameters`",
    "offered_tools": "think-act `offered_tools`",
    "finish_reasons": "think-act `finish_reasons`",
    "first_token_seconds": "think-act `first_token_at`",
    "graph_node": "think-act `node`",
    "tool_type": "tool call `tool_type`",
    "call_id": "tool call `provider_call_id`, and the think-act that chose it",
    "arguments": "tool call `arguments`",
    "result": "tool call `result`",
    "tool_failed": "tool call `status`",
    "cancelled": "the status `cancelled`",
    "node": "plan `opened_by_step_id`, by the agent's position in the graph",
    "node_above": "plan `opened_by_step_id`, by the agent's position in the graph",
    "caller": "plan `tool_call_id` or `opened_by_step_id`, if the span has no parent",
    "transfer_target": "plan `tool_call_id` of the agent with that name",
    **USES,
}
"""Where each field of a `SpanFacts` goes, and the other uses of attributes."""

HEAD = """# Attributes

Tracer computes records (plans, steps, think-acts, tool calls) from the attributes of OpenTelemetry
spans and log records. This page lists the attributes that Tracer reads, and the fields of records
that their values determine. All other attributes are stored with the span and shown with it.

<!-- `make attributes` writes this page from `tracer/otel/dialects`. -->

Each section is a convention for the names of attributes. The instrumentation scope of a span
selects the convention. If the scope is unknown, or its convention does not recognize the span, the
attributes select it; if they fit several conventions, Tracer uses the first one on this page. If
several attributes of a convention determine the same field, Tracer uses one that has a value. A
name that ends with `*` means all attributes whose names begin with the part before it. Most
conventions also read the attributes of the [GenAI conventions](#genai-conventions).
"""


CONVERSATIONS = """## Conversations

Runs with the same session id are one conversation. Each convention has its own attributes for this
id; the first one with a value becomes the run's `session_id`.

| convention | attributes |
|---|---|"""

NO_ID = "those of the GenAI conventions"


def page() -> str:
    """Return the page.

    Raises:
        ValueError: A dialect names a use that does not exist.
    """
    parts = [HEAD, _conversations(), *(_section(dialect) for dialect in DIALECTS)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _conversations() -> str:
    rows = [
        f"| {dialect.title} | {', '.join(f'`{name}`' for name in session_ids(dialect)) or NO_ID} |"
        for dialect in DIALECTS
    ]
    return "\n".join([CONVERSATIONS, *rows, ""])


def session_ids(dialect: Dialect) -> list[str]:
    """Return the attributes of a dialect that determine the session of a run."""
    return list(dict.fromkeys(dialect.reads.get("conversation", ())))


def _section(dialect: Dialect) -> str:
    known = {*USES, *SpanFacts.__struct_fields__}
    unknown = [use for use in dialect.reads if use not in known]
    if unknown:
        raise ValueError(f"{dialect.title}: no field of `SpanFacts` and not in `USES`: {unknown}")
    uses_of: dict[str, list[str]] = {dialect.kind: [USES["role"]]} if dialect.kind else {}
    for use, names in dialect.reads.items():
        for name in dict.fromkeys(names):
            uses_of.setdefault(name, []).append(FIELDS.get(use, use))
    for standard, names in dialect.names.items():
        for name in names:
            uses_of.setdefault(name, []).append(f"as `{standard}`")
    if not uses_of:
        return f"## {dialect.title}\n\nOnly the attributes of the GenAI conventions.\n"
    lines = [f"| `{name}` | {'; '.join(uses)} |" for name, uses in sorted(uses_of.items())]
    return "\n".join(
        [f"## {dialect.title}", "", "| attribute | goes to |", "|---|---|", *lines, ""]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
