"""Claude Code's own spans: `claude_code.interaction`, `.llm_request`, `.tool`."""

from __future__ import annotations

from tracer.otel.dialects.genai import ARGUMENTS, INPUT_TOKENS, OUTPUT_TOKENS, RESULTS
from tracer.otel.dialects.reading import WRAPPER, Reading, Role, count, first, first_text, money
from tracer.otel.spans import Span

_PREFIX = "claude_code."
_CONVERSATIONS = ("session.id", "session_id")


def read(span: Span) -> Reading | None:
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
            return Reading(
                Role.MODEL,
                conversation=conversation,
                model=first_text(attributes, ("model", "gen_ai.request.model")),
                input_tokens=count(first(attributes, ("input_tokens", *INPUT_TOKENS))),
                output_tokens=count(first(attributes, ("output_tokens", *OUTPUT_TOKENS))),
                cost_usd=money(first(attributes, ("cost_usd",))),
            )
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
