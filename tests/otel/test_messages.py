"""Messages in the form of the GenAI conventions are read like messages of any other form."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.profiles import scaled
from tracer.otel.dialects.messages import first_request, read_messages

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
    else:  # too deep for any parser: bare text
        assert said.text == text
