"""The attributes that the GenAI conventions' own reference scenarios emit reach the records.

`reference_scenarios/` lists, for each scenario, the attributes of each type of span. A test builds
one trace with all of them: a workflow that holds an agent that holds the other spans.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.otel.made_traces import make_span, projection_of
from tests.otel.projections import Projected
from tracer.otel.dialects import DIALECTS
from tracer.records import Kind
from tracer.records.merge import Fields

FOLDER = Path(__file__).parent / "reference_scenarios"
SCENARIOS = {
    path.stem: json.loads(path.read_text())["spans"] for path in sorted(FOLDER.glob("*.json"))
}

WEATHER = '{"location":"Seattle"}'
SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}}}
TOOLS = [{"type": "function", "name": "get_weather", "description": "w", "parameters": SCHEMA}]
ASKED = [{"role": "user", "parts": [{"type": "text", "content": "Weather in Seattle?"}]}]
ANSWERED = [{"role": "assistant", "parts": [{"type": "text", "content": "Sunny"}]}]

OPERATIONS = {
    "a2a.client": None,
    "a2a.server": None,
    "embeddings": "embeddings",
    "execute_tool": "execute_tool",
    "gen_ai.apply_guardrail.client": "apply_guardrail",
    "gen_ai.client.inference": "chat",
    "gen_ai.create_agent.client": "create_agent",
    "gen_ai.embeddings.client": "embeddings",
    "gen_ai.execute_tool.internal": "execute_tool",
    "gen_ai.inference.client": "chat",
    "gen_ai.invoke_agent.client": "invoke_agent",
    "gen_ai.invoke_agent.internal": "invoke_agent",
    "gen_ai.invoke_workflow.internal": "invoke_workflow",
    "gen_ai.memory.client": "search_memory",
    "gen_ai.plan.internal": "plan",
    "gen_ai.realtime_inference.client": "realtime_inference",
    "gen_ai.retrieval.client": "retrieval",
    "gen_ai.run_step.internal": "run_step",
    "generate_live_content": "generate_live_content",
    "inference": "chat",
    "invoke_agent_internal": "invoke_agent",
    "memory": "search_memory",
    "speech_to_text": "speech_to_text",
    "text_to_speech": "text_to_speech",
}
"""The operation of each type of span. Spans of A2A name none."""

RECORDS = {
    "chat": Kind.THINK_ACT,
    "realtime_inference": Kind.THINK_ACT,
    "generate_live_content": Kind.THINK_ACT,
    "invoke_agent": Kind.STEP,
    **dict.fromkeys(
        ("execute_tool", "embeddings", "retrieval", "search_memory", "apply_guardrail"),
        Kind.TOOL_CALL,
    ),
    **dict.fromkeys(("speech_to_text", "text_to_speech"), Kind.TOOL_CALL),
}
"""What the spans of each operation become. The others have no record."""

VALUES: dict[str, Any] = {
    "gen_ai.prompt.name": "x",
    "gen_ai.prompt.version": "x",
    "a2a.message.reference_task_ids": ["task-1"],
    "a2a.method.name": "SendMessage",
    "gen_ai.agent.name": "weather",
    "gen_ai.conversation.id": "conversation-1",
    "gen_ai.input.messages": json.dumps(ASKED),
    "gen_ai.memory.query.text": "vegetarian",
    "gen_ai.memory.record.count": 1,
    "gen_ai.memory.records": '[{"content":"likes lentils"}]',
    "gen_ai.output.messages": json.dumps(ANSWERED),
    "gen_ai.output.type": "text",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.choice.count": 2,
    "gen_ai.request.frequency_penalty": 0.25,
    "gen_ai.request.max_tokens": 96,
    "gen_ai.request.model": "gpt-4o-mini",
    "gen_ai.request.presence_penalty": 0.5,
    "gen_ai.request.reasoning.level": "low",
    "gen_ai.request.seed": 7,
    "gen_ai.request.stop_sequences": ["<END>"],
    "gen_ai.request.stream": True,
    "gen_ai.request.temperature": 0.75,
    "gen_ai.request.top_p": 0.875,
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.response.model": "gpt-4o-mini-2024-07-18",
    "gen_ai.response.time_to_first_chunk": 0.5,
    "gen_ai.retrieval.documents": '[{"id":"d1","score":0.9}]',
    "gen_ai.retrieval.query.text": "lentils",
    "gen_ai.retrieval.top_k": 3,
    "gen_ai.system_instructions": '[{"type":"text","content":"Be brief."}]',
    "gen_ai.tool.call.arguments": WEATHER,
    "gen_ai.tool.call.id": "call_1",
    "gen_ai.tool.call.result": "Sunny, 72°F",
    "gen_ai.tool.definitions": json.dumps(TOOLS),
    "gen_ai.tool.name": "get_weather",
    "gen_ai.usage.cache_creation.input_tokens": 4,
    "gen_ai.usage.cache_read.input_tokens": 5,
    "gen_ai.usage.input_tokens": 25,
    "gen_ai.usage.output_tokens": 12,
    "gen_ai.usage.reasoning.output_tokens": 6,
    "gen_ai.workflow.name": "trip",
}
"""The value of each attribute whose value matters. All others have the text "x"."""

PARAMETERS = {
    "gen_ai.output.type": "output_type",
    "gen_ai.request.choice.count": "n",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.reasoning.level": "reasoning_effort",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.stream": "stream",
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.prompt.name": "prompt_name",
    "gen_ai.prompt.version": "prompt_version",
}

MODEL_FIELDS = {
    "gen_ai.output.messages": ("thought", "Sunny"),
    "gen_ai.provider.name": ("provider", "openai"),
    "gen_ai.request.model": ("requested_model", "gpt-4o-mini"),
    "gen_ai.response.finish_reasons": ("finish_reasons", ["stop"]),
    "gen_ai.response.model": ("model", "gpt-4o-mini-2024-07-18"),
    "gen_ai.usage.cache_creation.input_tokens": ("cache_written_tokens", 4),
    "gen_ai.usage.cache_read.input_tokens": ("cache_read_tokens", 5),
    "gen_ai.usage.input_tokens": ("input_tokens", 25),
    "gen_ai.usage.output_tokens": ("output_tokens", 12),
    "gen_ai.usage.reasoning.output_tokens": ("reasoning_tokens", 6),
}
AGENT_FIELDS = {
    "gen_ai.agent.name": ("agent_name", "weather"),
    "gen_ai.input.messages": ("request", "Weather in Seattle?"),
    "gen_ai.output.messages": ("result", "Sunny"),
}
TOOL_FIELDS = {
    "gen_ai.memory.query.text": ("arguments", "vegetarian"),
    "gen_ai.memory.records": ("result", '[{"content":"likes lentils"}]'),
    "gen_ai.retrieval.documents": ("result", '[{"id":"d1","score":0.9}]'),
    "gen_ai.retrieval.query.text": ("arguments", "lentils"),
    "gen_ai.tool.call.arguments": ("arguments", WEATHER),
    "gen_ai.tool.call.id": ("provider_call_id", "call_1"),
    "gen_ai.tool.call.result": ("result", "Sunny, 72°F"),
    "gen_ai.tool.name": ("name", "get_weather"),
}
FIELDS: dict[Kind, dict[str, tuple[str, Any]]] = {
    Kind.THINK_ACT: MODEL_FIELDS,
    Kind.STEP: AGENT_FIELDS,
    Kind.TOOL_CALL: TOOL_FIELDS,
}
"""The field that each attribute fills, and its value there."""

NOT_READ = {
    "a2a.message.id": "it identifies a message, not work",
    "a2a.message.reference_task_ids": "it refers to tasks of other traces",
    "a2a.protocol.version": "no part of a record",
    "a2a.task.id": "it identifies a task of the protocol",
    "a2a.task.state": "the agent's own span has the status",
    "a2a.tenant": "no part of a record",
    "client.address": "no part of a record",
    "client.port": "no part of a record",
    "gen_ai.agent.capability": "authorization of agents is not recorded",
    "gen_ai.agent.description": "no part of a record",
    "gen_ai.agent.drift.method": "authorization of agents is not recorded",
    "gen_ai.agent.drift.score": "authorization of agents is not recorded",
    "gen_ai.agent.invocation.status": "the status of the span decides",
    "gen_ai.agent.public_key.algorithm": "authorization of agents is not recorded",
    "gen_ai.agent.scan.method": "authorization of agents is not recorded",
    "gen_ai.agent.scan.verdict": "authorization of agents is not recorded",
    "gen_ai.agent.trust.method": "authorization of agents is not recorded",
    "gen_ai.agent.trust.score": "authorization of agents is not recorded",
    "gen_ai.agent.version": "no part of a record",
    "gen_ai.data_source.id": "no part of a record",
    "gen_ai.embeddings.dimension.count": "no part of a record",
    "gen_ai.external_ref": "it refers to another system",
    "gen_ai.guardrail.component.name": "no part of a record",
    "gen_ai.memory.record.count": "the records themselves are read",
    "gen_ai.memory.record.id": "no part of a record",
    "gen_ai.memory.store.id": "no part of a record",
    "gen_ai.request.encoding_formats": "a parameter of embeddings",
    "gen_ai.retrieval.top_k": "a parameter of a retrieval",
    "gen_ai.speech.input.language": "no part of a record",
    "gen_ai.speech.voice": "no part of a record",
    "gen_ai.step.name": "a run step has no record",
    "gen_ai.tool.description": "the offered tools have it",
    "gen_ai.tool.type": "it separates functions from extensions, not kinds of tools",
    "gen_ai.usage.audio.cache_read.input_tokens": "part of `cache_read_tokens`",
    "gen_ai.usage.image.cache_read.input_tokens": "part of `cache_read_tokens`",
    "gen_ai.usage.image.input_tokens": "part of `input_tokens`",
    "gen_ai.usage.text.cache_read.input_tokens": "part of `cache_read_tokens`",
    "gen_ai.usage.text.input_tokens": "part of `input_tokens`",
    "gen_ai.usage.text.output_tokens": "part of `output_tokens`",
    "server.address": "no part of a record",
    "server.port": "no part of a record",
}
"""The attributes that no dialect reads, and why. They remain visible in the span."""


def test_each_attribute_of_the_scenarios_is_read_or_listed_with_a_reason() -> None:
    emitted = {
        attribute
        for spans in SCENARIOS.values()
        for attributes in spans.values()
        for attribute in attributes
    }
    read = {
        name
        for dialect in DIALECTS
        for use, names in dialect.reads.items()
        if use != "shown"
        for name in names
    }

    assert emitted - read - NOT_READ.keys() == set(), "read them, or say why not"
    assert NOT_READ.keys() & read == set(), "they are read now"
    assert NOT_READ.keys() - emitted == set(), "no scenario has them any more"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_attributes_of_a_reference_scenario_fill_the_records(scenario: str) -> None:
    spans, numbers = trace_of(scenario)
    run = projection_of(*spans)

    kinds = Counter(kind_of(span_type) for span_type in SCENARIOS[scenario])
    rounds = run.records[Kind.THINK_ACT].values()
    inferred = sum(each["inferred"] for each in rounds)
    assert {kind: len(run.records[kind]) for kind in FIELDS} == {
        Kind.THINK_ACT: kinds[Kind.THINK_ACT] + inferred,
        Kind.STEP: 1,
        Kind.TOOL_CALL: kinds[Kind.TOOL_CALL],
    }
    for span_type, attributes in SCENARIOS[scenario].items():
        kind = kind_of(span_type)
        if kind is None:
            continue
        fields = record_of(run, kind, numbers[span_type])
        filled = FIELDS[kind]
        expected = dict(filled[each] for each in attributes if each in filled)
        assert {name: plain(fields[name]) for name in expected} == expected, span_type
        if kind is Kind.THINK_ACT:
            assert_model_call(fields, attributes)
    if any("gen_ai.conversation.id" in attributes for attributes in SCENARIOS[scenario].values()):
        assert run.run["session_id"] == "conversation-1"


def trace_of(scenario: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the spans of a scenario, as OTLP/JSON, and the number of each type's span.

    An agent surrounds the spans of the others if the scenario has none.
    """
    types = SCENARIOS[scenario]
    numbers = {span_type: number for number, span_type in enumerate(types, start=2)}
    workflow = next((numbers[each] for each in types if "workflow" in each), None)
    agent = next((numbers[each] for each in types if "invoke_agent" in each), None)
    spans = []
    if agent is None:
        agent = 1
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "weather"}
        spans.append(make_span(agent, "invoke_agent weather", attributes, parent=workflow))
    for span_type, names in types.items():
        number = numbers[span_type]
        operation = OPERATIONS[span_type]
        attributes = {name: VALUES.get(name, "x") for name in names}
        if operation is not None:
            attributes["gen_ai.operation.name"] = operation
        parent = None if number == workflow else workflow if number == agent else agent
        at = (0, 99) if number in (workflow, agent) else (number, number + 0.75)
        spans.append(make_span(number, span_type, attributes, parent=parent, at=at))
    return spans, numbers


def kind_of(span_type: str) -> Kind | None:
    """Return what a span of this type becomes; None if it has no record of its own."""
    operation = OPERATIONS[span_type]
    return RECORDS.get(operation) if operation is not None else None


def record_of(run: Projected, kind: Kind, number: int) -> Fields:
    """Return the record that a span became, of an agent the step."""
    kind_of_record, record_id = run.record_of[number.to_bytes(8, "big")]
    if kind is Kind.STEP:
        (step,) = run.records[Kind.STEP].values()
        return step
    assert kind_of_record is kind
    return run.records[kind][record_id]


def assert_model_call(fields: Fields, attributes: list[str]) -> None:
    parameters = {PARAMETERS[each]: VALUES[each] for each in attributes if each in PARAMETERS}
    assert (json.loads(fields["parameters"]) if fields["parameters"] else {}) == parameters
    if "gen_ai.input.messages" in attributes:
        roles = [message["role"] for message in json.loads(fields["messages"])]
        has_system = "gen_ai.system_instructions" in attributes
        assert roles == (["system", "user"] if has_system else ["user"])
    if "gen_ai.tool.definitions" in attributes:
        (tool,) = json.loads(fields["offered_tools"])
        assert (tool["name"], tool["description"]) == ("get_weather", "w")
    if "gen_ai.response.time_to_first_chunk" in attributes:
        started = fields["started_at"].astimezone(UTC)
        assert (fields["first_token_at"] - started).total_seconds() == 0.5


def plain(value: Any) -> Any:
    """Return a stored list as a list of Python, anything else as it is."""
    return list(value) if isinstance(value, tuple | list) else value


def test_each_span_type_of_the_scenarios_has_a_known_operation() -> None:
    types = {span_type for spans in SCENARIOS.values() for span_type in spans}

    assert types == OPERATIONS.keys()


def test_source_of_each_copied_scenario_is_documented() -> None:
    sources = (FOLDER / "SOURCES.md").read_text()

    assert [name for name in SCENARIOS if f"`{name}.json`" not in sources] == []
