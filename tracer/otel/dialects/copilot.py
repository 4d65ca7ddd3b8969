"""GitHub Copilot CLI 1.0.102: spans of the GenAI conventions, with a few habits of its own."""

from __future__ import annotations

import re

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import Dialect, Role, SpanFacts
from tracer.records.spans import ReadableSpan

_CONTEXT = re.compile(r"\A(?:\s*<current_datetime>[^<]*</current_datetime>)+\s*")
"""What Copilot CLI writes before a prompt."""
_EXIT_CODE = re.compile(r"<shellId: [^<>]* completed with exit code (-?\d{1,10})>\s*\Z")
"""The end of a command's result. Commands that are read later have no other exit code."""


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of the GenAI conventions; None for any other span."""
    facts = genai.read(span)
    if facts is None:
        return None
    if facts.request is not None:
        facts = facts._replace(request=_CONTEXT.sub("", facts.request))
    if facts.role is Role.AGENT and "gen_ai.agent.name" not in span.attributes:
        return facts._replace(name="copilot")
    if facts.role is Role.TOOL and facts.result is not None:
        code = _EXIT_CODE.search(facts.result)
        return facts._replace(
            has_failed=facts.has_failed or (code is not None and int(code[1]) != 0)
        )
    return facts


DIALECT = Dialect("GitHub Copilot CLI", order=61, scopes=("github.copilot",), read=read)
