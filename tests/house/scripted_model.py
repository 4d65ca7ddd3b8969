"""A model provider for the pages of the documentation: OpenAI's and Anthropic's APIs on loopback.

It answers by the offered tools and by the calls that are already in the conversation: a planner
delegates (in parallel if it is offered several ways to), a researcher searches, and then each
answers. Every answer costs 100 input and 10 output tokens.

`python -m tests.house.scripted_model` serves until it is interrupted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.tools.http_servers import Received, http_server, reply

DELEGATION = re.compile(r"ask_\w+|delegate_task\w*|transfer_to_\w+")
SEARCH = re.compile(r"search\w*")
ARGUMENTS = {
    **dict.fromkeys(("question", "input", "task"), "When is low tide in Brest?"),
    "query": "low tide Brest",
    "member_id": "researcher",
}
"""The value of each parameter that a tool of the pages may have."""
PLANNER_ANSWER = "Go at 06:41, at low tide."
RESEARCHER_ANSWER = "Low tide is at 06:41."
INPUT_TOKENS, OUTPUT_TOKENS = 100, 10

JSON = dict[str, Any]
_ids = count(1)


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, str]
    call_id: str


@dataclass(frozen=True)
class Turn:
    """The model's answer: a text or calls."""

    text: str
    calls: tuple[Call, ...]


def answer_request(request: Received) -> bytes:
    """Answer a request to the model; any other request gets an empty JSON object."""
    for path, formats in FORMATS.items():
        if request.path.endswith(path):
            body = request.json
            whole, events = formats
            answer = whole(_turn(body), body["model"])
            if not body.get("stream"):
                return reply(json=answer)
            return reply(body="".join(events(answer)), content_type="text/event-stream")
    return reply(json={})


def _turn(body: JSON) -> Turn:
    offered = {
        tool["name"]: tool.get("parameters") or tool.get("input_schema") or {}
        for each in body.get("tools") or ()
        if "name" in (tool := each.get("function", each))
    }
    called = set(_called(body.get("messages") or body.get("input") or ()))
    for kind in (DELEGATION, SEARCH):
        names = [name for name in offered if kind.fullmatch(name) and name not in called]
        if names:
            calls = (_call(name, offered[name].get("properties", {})) for name in names)
            return Turn("", tuple(calls))
    is_planner = any(DELEGATION.fullmatch(name) for name in offered)
    return Turn(PLANNER_ANSWER if is_planner else RESEARCHER_ANSWER, ())


def _call(name: str, parameters: JSON) -> Call:
    arguments = {each: ARGUMENTS[each] for each in parameters if each in ARGUMENTS}
    return Call(name, arguments, f"call_{next(_ids)}")


def _called(messages: Any) -> Iterator[str]:
    """Return the names of the tools that the model has called in a conversation."""
    for message in messages if isinstance(messages, list) else ():
        if message.get("type") == "function_call":
            yield message["name"]
        yield from (each["function"]["name"] for each in message.get("tool_calls") or ())
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use":
                yield block["name"]


def _sse(data: JSON, event: str = "") -> str:
    return (f"event: {event}\n" if event else "") + f"data: {json.dumps(data)}\n\n"


# --- OpenAI, chat completions -------------------------------------------------------------------


def _completion(turn: Turn, model: str) -> JSON:
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in turn.calls
    ]
    message = {"role": "assistant", "content": turn.text or None}
    choice = {
        "index": 0,
        "finish_reason": "tool_calls" if calls else "stop",
        "message": message | ({"tool_calls": calls} if calls else {}),
    }
    return {
        "id": f"chatcmpl-{next(_ids)}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": INPUT_TOKENS,
            "completion_tokens": OUTPUT_TOKENS,
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        },
    }


def _completion_events(answer: JSON) -> Iterator[str]:
    [choice] = answer["choices"]
    chunk = {**answer, "object": "chat.completion.chunk", "usage": None}
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": at, **each} for at, each in enumerate(delta["tool_calls"])]
    for part, reason in ((delta, None), ({}, choice["finish_reason"])):
        yield _sse(chunk | {"choices": [{"index": 0, "delta": part, "finish_reason": reason}]})
    yield _sse(chunk | {"choices": [], "usage": answer["usage"]})
    yield "data: [DONE]\n\n"


# --- OpenAI, responses ---------------------------------------------------------------------------


def _response(turn: Turn, model: str) -> JSON:
    output: list[JSON] = [
        {
            "type": "function_call",
            "id": f"fc_{call.call_id}",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in turn.calls
    ]
    if turn.text:
        text = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "role": "assistant", "status": "completed"}
        output.append({"id": f"msg_{next(_ids)}", **message, "content": [text]})
    return {
        "id": f"resp_{next(_ids)}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        },
    }


def _response_events(answer: JSON) -> Iterator[str]:
    numbers = count()

    def event(kind: str, **fields: Any) -> str:
        return _sse({"type": kind, "sequence_number": next(numbers), **fields}, kind)

    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    for at, item in enumerate(answer["output"]):
        common = {"output_index": at, "item_id": item["id"]}
        if item["type"] == "function_call":
            yield event(
                "response.output_item.added", output_index=at, item=item | {"arguments": ""}
            )
            arguments, kind = item["arguments"], "response.function_call_arguments"
            yield event(f"{kind}.delta", **common, delta=arguments)
            yield event(f"{kind}.done", **common, arguments=arguments, name=item["name"])
        else:
            yield event("response.output_item.added", output_index=at, item=item | {"content": []})
            [part] = item["content"]
            common["content_index"] = 0
            text: JSON = {"logprobs": []}
            yield event("response.content_part.added", **common, part=part | {"text": ""})
            yield event("response.output_text.delta", **common, delta=part["text"], **text)
            yield event("response.output_text.done", **common, text=part["text"], **text)
            yield event("response.content_part.done", **common, part=part)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event("response.completed", response=answer)


# --- Anthropic, messages -------------------------------------------------------------------------


def _message(turn: Turn, model: str) -> JSON:
    content: list[JSON] = [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
        for call in turn.calls
    ]
    if turn.text:
        content.append({"type": "text", "text": turn.text})
    return {
        "id": f"msg_{next(_ids)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
    }


def _message_events(answer: JSON) -> Iterator[str]:
    begun = {**answer, "content": [], "stop_reason": None}
    yield _sse({"type": "message_start", "message": begun}, "message_start")
    for at, block in enumerate(answer["content"]):
        if block["type"] == "text":
            empty: JSON = {"text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        for kind, field in (
            ("content_block_start", {"content_block": block | empty}),
            ("content_block_delta", {"delta": delta}),
            ("content_block_stop", {}),
        ):
            yield _sse({"type": kind, "index": at, **field}, kind)
    ending = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": OUTPUT_TOKENS}
    yield _sse({"type": "message_delta", "delta": ending, "usage": usage}, "message_delta")
    yield _sse({"type": "message_stop"}, "message_stop")


FORMATS = {
    "/chat/completions": (_completion, _completion_events),
    "/responses": (_response, _response_events),
    "/messages": (_message, _message_events),
}
"""By the end of the path: the whole answer, and the events of the same answer."""


async def _serve() -> None:
    async with http_server(answer_request) as server:
        settings = {"OPENAI_BASE_URL": f"{server.url}/v1", "ANTHROPIC_BASE_URL": server.url}
        settings |= {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
        print(*(f"export {name}={value}" for name, value in settings.items()), sep="\n", flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
