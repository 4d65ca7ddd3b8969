"""Messages in the form of the GenAI conventions are read like messages of any other form."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.profiles import scaled
from tracer.otel.dialects import read_messages
from tracer.otel.dialects.dialect import ExecutedCall
from tracer.otel.dialects.messages import first_request

_TEXTS = st.one_of(
    st.text(max_size=5), st.sampled_from(["__REDACTED__", "ResponseFunctionToolCall(name='x')"])
)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner)),
    max_leaves=5,
)
_PARTS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "content": _TEXTS}),
    st.fixed_dictionaries(
        {"type": st.just("tool_call")},
        optional={
            "id": st.none() | _TEXTS,
            "name": st.none() | _TEXTS,
            "arguments": _JSON,
            "role": _TEXTS,
        },
    ),
    st.fixed_dictionaries({"type": st.sampled_from(["text", "reasoning"])}),
)
_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "Assistant", "human", "system", "tool", ""])},
        optional={
            "parts": st.lists(_PARTS, max_size=3),
            "finish_reason": st.none() | _TEXTS,
            "content": _TEXTS,
        },
    ),
    max_size=3,
)


@given(messages=_MESSAGES)
@example(messages=[{"role": "user", "parts": [{"type": "tool_call", "arguments": 10**30}]}])
@settings(max_examples=scaled(1000))
def test_json_text_is_read_like_the_same_messages_as_values(messages: object) -> None:
    text = json.dumps(messages)
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError:  # a lone surrogate, or no JSON number: then it is bare text
        assert [said.text for said in read_messages(text)] == [text]
        return

    assert read_messages(text) == read_messages(values)
    assert first_request(text) == first_request(values)


@pytest.mark.parametrize("depth", [10, 250, 400, 600, 100_000])
def test_arguments_of_any_depth_are_read(depth: int) -> None:
    arguments = "[" * depth + "]" * depth
    text = f'[{{"role":"assistant","parts":[{{"type":"tool_call","arguments":{arguments}}}]}}]'

    (said,) = read_messages(text)

    if depth <= 500:
        assert [call.arguments for call in said.calls] == [arguments]
    else:  # too deep for any parser, and no text to show
        assert (said.text, said.calls) == ("", ())


CALL = '{"type": "tool_call", "id": "c1", "name": "plot", "arguments": {"y": [1.0, NaN]}}'
PARTS = f'[{{"role": "assistant", "parts": [{{"type": "text", "content": "Well."}}, {CALL}]}}]'


@pytest.mark.parametrize(
    "value",
    [
        PARTS,  # NaN, as Python writes it
        PARTS.replace("NaN", "-Infinity"),
        repr(json.loads(PARTS.replace("NaN", "null"))),
        json.dumps(PARTS.replace("NaN", "1")),  # JSON in a JSON string
        [json.dumps(json.loads(PARTS)[0])],  # an array of JSON strings
        PARTS[:-1],
        PARTS[:-4],
        PARTS[:-1] + ', {"role": "user", "parts": [{"type": "te',
        PARTS[:-3] + ', {"type": "text", "content": "',
        PARTS[:-3] + ', {"type": "text", "conte',
        PARTS[:-3] + ', {"type":',
        PARTS[:-3] + ",",
    ],
)
def test_messages_that_are_not_strict_json_are_read(value: Any) -> None:
    said = read_messages(value)[0]

    assert (said.role, said.text) == ("assistant", "Well.")
    assert [(call.call_id, call.name) for call in said.calls] == [("c1", "plot")]


@pytest.mark.parametrize("end", range(30, len(PARTS), 7))
def test_cut_messages_never_become_text(end: int) -> None:
    assert all(said.text in ("", "Well."[: len(said.text)]) for said in read_messages(PARTS[:end]))


def test_all_parts_of_an_answer_are_read_in_order() -> None:
    parts = [
        {"type": "reasoning", "content": "So I search."},
        {"type": "text", "content": "One."},
        {
            "type": "server_tool_call",
            "id": "s1",
            "name": "web_search",
            "server_tool_call": {"query": "q"},
        },
        {"type": "server_tool_call_response", "id": "s1", "server_tool_call_response": ["2:1"]},
        {"type": "image", "uri": "https://example.org/a.png"},
        {"type": "text", "content": "Two."},
    ]

    (said,) = read_messages([{"role": "assistant", "parts": parts}])

    assert (said.text, said.reasoning, said.calls) == ("One.\nTwo.", "So I search.", ())
    assert said.executed == (ExecutedCall("s1", "web_search", '{"query":"q"}', '["2:1"]'),)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            ExecutedCall("s", "web_search", "{}"),
        ),
        (
            {"type": "web_search_call", "id": "s", "action": {"query": "q"}},
            ExecutedCall("s", "web_search", '{"query":"q"}'),
        ),
        (
            {"type": "mcp_call", "id": "s", "name": "ask", "arguments": "{}", "output": "yes"},
            ExecutedCall("s", "ask", "{}", "yes"),
        ),
        (
            {"type": "tool_call", "builtin": True, "id": "s", "name": "run", "arguments": {}},
            ExecutedCall("s", "run", "{}"),
        ),
    ],
)
def test_calls_that_the_provider_executed_are_no_chosen_calls(
    piece: dict[str, Any], expected: ExecutedCall
) -> None:
    (said,) = read_messages([{"role": "assistant", "parts": [piece]}])

    assert (said.calls, said.executed) == ((), (expected,))


@pytest.mark.parametrize("kind", ["local_shell_call", "computer_call", "apply_patch_call"])
def test_calls_that_the_program_executes_are_not_taken_for_the_provider_s(kind: str) -> None:
    piece = {"type": kind, "call_id": "c", "action": {"command": "ls"}}
    (said,) = read_messages([{"role": "assistant", "parts": [piece]}])

    assert said.executed == ()
