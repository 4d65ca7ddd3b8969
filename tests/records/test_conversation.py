"""The messages of every provider's API become one common form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracer.records.conversation import MAX_FILE_CHARACTERS, conversation

ARGUMENTS = '{"city": "Brest"}'
PIXEL = "iVBORw0KGgo="

APIS: dict[str, list[Any]] = {
    "chat completions": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": ARGUMENTS},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "14C"},
    ],
    "OpenAI responses": [
        {"role": "system", "content": "Be brief."},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Weather?"}],
        },
        {
            "type": "function_call",
            "id": "fc1",
            "call_id": "c1",
            "name": "weather",
            "arguments": ARGUMENTS,
        },
        {"type": "function_call_output", "call_id": "c1", "output": "14C"},
    ],
    "Anthropic": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Brest"}}
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "14C"}],
                }
            ],
        },
    ],
    "Gemini": [
        {"role": "system", "parts": [{"text": "Be brief."}]},
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Brest"}}}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c1", "name": "weather", "response": "14C"}}],
        },
    ],
    "OpenTelemetry": [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]},
        {
            "role": "assistant",
            "parts": [
                {
                    "type": "tool_call",
                    "id": "c1",
                    "name": "weather",
                    "arguments": {"city": "Brest"},
                }
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "14C"}]},
    ],
}


@pytest.mark.parametrize("api", APIS)
def test_messages_of_every_provider_api_give_the_same_conversation(api: str) -> None:
    found = conversation(json.dumps(APIS[api]))

    assert found is not None
    parts = [part for message in found for part in message.parts]
    assert [part.type for part in parts] == ["text", "text", "toolCall", "toolResult"]
    system, user, call, result = (part.model_dump() for part in parts)
    assert (system["text"], user["text"]) == ("Be brief.", "Weather?")
    assert (call["id"], call["name"]) == ("c1", "weather")
    assert json.loads(call["arguments"]) == {"city": "Brest"}
    assert (result["id"], result["text"]) == ("c1", "14C")
    assert [message.role for message in found[:3]] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
        },
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"type": "blob", "mime_type": "image/png", "modality": "image", "content": PIXEL},
    ],
)
def test_conversation_shows_an_image_as_a_file_with_its_size(part: dict[str, Any]) -> None:
    [message] = conversation(json.dumps([{"role": "user", "content": [part]}])) or []
    assert [each.model_dump(by_alias=True) for each in message.parts] == [
        {
            "type": "file",
            "mediaType": "image/png",
            "name": None,
            "uri": f"data:image/png;base64,{PIXEL}",
            "size": 8,
        }
    ]


@pytest.mark.parametrize(("stated", "media_type"), [("wav", "audio/wav"), ("mp3", "audio/mpeg")])
def test_sound_has_a_media_type_though_its_part_states_a_format(
    stated: str, media_type: str
) -> None:
    part = {"type": "input_audio", "input_audio": {"data": PIXEL, "format": stated}}
    [message] = conversation(json.dumps([{"role": "user", "content": [part]}])) or []
    [found] = (each.model_dump() for each in message.parts)
    assert found["media_type"] == media_type
    assert found["uri"] == f"data:{media_type};base64,{PIXEL}"


def test_conversation_shows_a_large_file_without_its_data() -> None:
    data = "A" * (MAX_FILE_CHARACTERS + 4)
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": data}}
    [message] = conversation(json.dumps([{"role": "user", "content": [part]}])) or []
    [found] = (each.model_dump() for each in message.parts)
    assert (found["name"], found["uri"], found["size"]) == ("a.pdf", None, len(data) * 3 // 4)


def test_conversation_separates_reasoning_and_keeps_unknown_parts() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "text", "text": "Yes."},
        {"type": "hologram", "depth": 3},
    ]
    [message] = conversation(json.dumps([{"role": "assistant", "content": content}])) or []
    assert [part.model_dump(by_alias=True) for part in message.parts] == [
        {"type": "reasoning", "text": "Hm."},
        {"type": "text", "text": "Yes."},
        {"type": "other", "json": '{"type":"hologram","depth":3}'},
    ]


def test_text_that_is_not_json_has_no_conversation() -> None:
    assert conversation(None) is None
    assert conversation('[{"role": "us[masked: rest of 48213 bytes]') is None
    assert conversation("[" * 2000) is None


def test_conversation_of_any_json_raises_no_error() -> None:
    for odd in ("1", '"a"', "{}", "[1, null, [], [[]], {}]", '[{"role": 1, "content": 2}]'):
        assert conversation(odd) is not None
