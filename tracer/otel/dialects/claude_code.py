"""Claude Code's own spans: `claude_code.interaction`, `.llm_request`, `.tool`."""

from __future__ import annotations

from tracer.otel.dialects.genai import ARGUMENTS, INPUT_TOKENS, OUTPUT_TOKENS, RESULTS
from tracer.otel.dialects.reading import WRAPPER, Reading, Role, count, first, first_text
from tracer.otel.otlp.spans import ReadableSpan
from tracer.records.prices import usd

_PREFIX = "claude_code."
_CONVERSATIONS = ("session.id", "session_id")


def read(span: ReadableSpan) -> Reading | None:
    """Return what Claude Code says of a span; None where it is not Claude Code's.

    A tool's `.execution` and `.blocked_on_user` are parts of the one call.
    """
    if not span.name.startswith(_PREFIX):
        return None
    attributes = span.attributes
    conversation = first_text(attributes, _CONVERSATIONS)
    match span.name.removeprefix(_PREFIX):
        case "interaction":
            return Reading(
                Role.AGENT,
                name=first_text(attributes, ("agent_name", "agent_id")) or "claude_code",
                conversation=conversation,
                request=first_text(attributes, ("user_prompt", "prompt")),
            )
        case "llm_request":
            return _model(span, conversation)
        case "tool":
            return Reading(
                Role.TOOL,
                name=first_text(attributes, ("tool_name", "gen_ai.tool.name")),
                conversation=conversation,
                call_id=first_text(attributes, ("tool_use_id", "gen_ai.tool.call.id")),
                arguments=first_text(attributes, ("tool_input", *ARGUMENTS)),
                result=first_text(attributes, ("tool_output", *RESULTS)),
            )
    return WRAPPER


def _model(span: ReadableSpan, conversation: str | None) -> Reading:
    """Its `input_tokens` are Anthropic's: without those that were read from or put into a cache."""
    attributes = span.attributes
    fresh = count(attributes.get("input_tokens"))
    cached = count(attributes.get("cache_read_tokens")) or 0
    written = count(attributes.get("cache_creation_tokens")) or 0
    whole = count(first(attributes, INPUT_TOKENS))
    return Reading(
        Role.MODEL,
        conversation=conversation,
        model=first_text(attributes, ("model", "gen_ai.request.model")),
        input_tokens=whole if fresh is None else fresh + cached + written,
        output_tokens=count(first(attributes, ("output_tokens", *OUTPUT_TOKENS))),
        cache_read_tokens=cached,
        cache_written_tokens=written,
        cost_usd=usd(first(attributes, ("cost_usd",))),
    )
