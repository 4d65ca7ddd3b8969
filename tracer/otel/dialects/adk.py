"""Google ADK: the spans that the SDK itself creates, in its current and its older schema."""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import WRAPPER, Dialect, Role, SpanFacts
from tracer.records.spans import ReadableSpan

SCOPES = ("gcp.vertex.agent", "google.adk", "google_adk")
_MERGED = "(merged tools)"
_EMPTY = ("{}", "N/A")


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span that Google ADK created; None for any other span.

    A span named `execute_tool (merged)` summarizes several tool calls, so it is not a tool call.
    The older schema has two peculiarities: it writes `{}` in place of content that it omits, and it
    wraps each agent in a span named `agent_run [NAME]`.
    """
    if span.scope not in SCOPES:
        return None
    if span.attributes.get("gen_ai.tool.name") == _MERGED or span.name.endswith("(merged)"):
        return WRAPPER
    if span.name == "call_llm":
        return genai.speaking_facts(span, Role.MODEL)
    if span.name.startswith("agent_run ["):
        facts = genai.speaking_facts(span, Role.AGENT)
        return facts._replace(name=span.name.removeprefix("agent_run [").removesuffix("]"))
    facts = genai.read(span) or WRAPPER
    if facts.role is Role.TOOL and "gen_ai.tool.call.arguments" not in span.attributes:
        return facts._replace(arguments=_content(facts.arguments), result=_content(facts.result))
    return facts


def _content(text: str | None) -> str | None:
    return None if text in _EMPTY else text


DIALECT = Dialect(
    "Google ADK",
    order=70,
    scopes=SCOPES,
    read=read,
    reads={"role": ("gen_ai.tool.name",), "arguments": ("gen_ai.tool.call.arguments",)},
)
