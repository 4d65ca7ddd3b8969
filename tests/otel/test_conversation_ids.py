"""The ids by which emitters name a conversation become the session of the run."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.attributes import session_ids
from tests.otel import captured
from tests.otel.coding_agents import captured as coding_agents
from tests.otel.made_traces import make_span, projection_of
from tracer.otel.dialects import DIALECTS

GENAI = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
SPANS: dict[str, tuple[str, dict[str, Any], str]] = {
    "Logfire": (
        "run",
        {"logfire.msg_template": "OpenAI Agents trace: {name}"},
        "logfire.openai_agents",
    ),
    "Langfuse": ("run", {"langfuse.observation.type": "agent"}, "langfuse-sdk"),
    "Laminar": ("run", {"lmnr.span.type": "DEFAULT"}, "lmnr"),
    "LangSmith": ("run", {"langsmith.span.kind": "chain"}, "langsmith"),
    "MLflow": ("run", {"mlflow.spanType": '"AGENT"'}, "mlflow"),
    "OpenInference": ("run", {"openinference.span.kind": "AGENT"}, "openinference"),
    "OpenLLMetry (Traceloop)": (
        "run",
        {"traceloop.span.kind": "agent", "traceloop.entity.name": "a"},
        "opentelemetry.instrumentation.langchain",
    ),
    "Vercel AI SDK": ("ai.generateText", {"ai.operationId": "ai.generateText"}, "ai"),
    "Claude Code": ("claude_code.interaction", {}, "com.anthropic.claude_code.tracing"),
    "Agent2Agent protocol": ("run", GENAI, "a2a-python-sdk"),
    "GenAI conventions": ("invoke_agent a", GENAI, "any"),
}
"""A span of an agent by convention: its name, its attributes and its scope."""

CAPTURED = ("Codex", "Gemini CLI")
"""Conventions that captures test: their spans belong together in their own ways."""

IDS = [
    (dialect.title, name)
    for dialect in DIALECTS
    for name in session_ids(dialect)
    if dialect.title not in CAPTURED
]


@pytest.mark.parametrize(("title", "attribute"), IDS)
def test_attribute_of_a_convention_is_the_session(title: str, attribute: str) -> None:
    name, attributes, scope = SPANS[title]
    value = '"chat-7"' if attribute.startswith("mlflow.") else "chat-7"

    run = projection_of(make_span(1, name, attributes | {attribute: value}, scope=scope))

    assert run.run["session_id"] == "chat-7"


@pytest.mark.parametrize(
    ("capture", "attribute"),
    [
        ("agno-openinference-single", "session.id"),
        ("google-adk-v2-single", "gen_ai.conversation.id"),
        ("pydantic-ai-default-single", "gen_ai.conversation.id"),
    ],
)
def test_capture_of_a_framework_has_the_session_that_it_sent(capture: str, attribute: str) -> None:
    spans = captured.spans_of(capture)
    sent = {span.attributes[attribute] for span in spans if attribute in span.attributes}

    found = {run.whole_run["session_id"] for run in captured.projected(spans)}

    # Sub-agents may bring ids of their own.
    assert found
    assert found <= sent


@pytest.mark.parametrize(
    "capture",
    [
        *("claude-code-2.1.332-turns-content-on", "codex-two-tools", "gemini-cli-two-tools"),
        *("copilot-cli-two-tools", "opencode-two-tools-served"),
    ],
)
def test_runs_of_a_coding_agent_share_the_session_that_it_sent(capture: str) -> None:
    messages = coding_agents.messages_of(capture)
    runs = coding_agents.projected(messages)

    [session] = {run.whole_run["session_id"] for run in runs}

    assert session.encode() in b"".join(message for _, message in messages)
