"""A scripted model behind the APIs of Anthropic, OpenAI and Google.

It answers from a scenario, and keeps a record of its answers and of the results that it was sent.
The record is the truth that Tracer is compared with.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.otel.coding_agents.live.scenarios import Scenario, Step, Turn

_TAG = re.compile(r"\[([a-z]+(?:/[a-z]+)*)\]")
_HELPER = "Demonstration"
"""The answer to a request of no conversation of the scenario, such as one for a title."""


class Usage(NamedTuple):
    """The tokens of an answer. `input` includes the cached ones."""

    input: int
    cached: int
    output: int


@dataclass(frozen=True)
class MadeCall:
    """A tool call that the model asked for."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    step: Step


@dataclass(frozen=True)
class Answer:
    """An answer of the model."""

    tag: str | None
    """The conversation; None for a request that belongs to none of the scenario."""
    turn: int
    usage: Usage
    text: str
    calls: list[MadeCall]


class Request(NamedTuple):
    """What a program asked, whatever the API."""

    texts: list[str]
    """The texts of the user's messages."""
    results: dict[str, str]
    """The results of tool calls, by the id of the call."""
    tools: list[str]
    model: str


Translate = Callable[[Step, Mapping[str, str]], tuple[str, dict[str, Any]]]
"""Returns the name and arguments of a call in the words of a program, given the results so far."""


@dataclass
class ScriptedModel:
    """Answers the requests of one program."""

    scenario: Scenario
    script: Mapping[str, tuple[Turn, ...]]
    translate: Translate
    address: str = ""
    answers: list[Answer] = field(default_factory=list[Answer])
    results: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[tuple[str, Any]] = field(default_factory=list[Any])
    """The path and body of each request, to find out what a new version sends."""
    _turns: Counter[str] = field(default_factory=Counter[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Answer:
        """Return the next answer of the request's conversation."""
        with self._lock:
            self.results |= request.results
            tag = self._tag_of(request)
            turn = self._turns[tag or ""]
            self._turns[tag or ""] += 1
            answer = self._next(tag, turn, request.results)
            self.answers.append(answer)
            return answer

    def _tag_of(self, request: Request) -> str | None:
        if not request.tools:
            return None
        for each in request.texts:
            tags = [tag for tag in _TAG.findall(each) if tag in self.script]
            if tags:
                return str(tags[-1])
        return None

    def _next(self, tag: str | None, turn: int, results: Mapping[str, str]) -> Answer:
        if tag is None:
            return Answer(None, turn, Usage(11, 0, 3), _HELPER, [])
        number = list(self.script).index(tag)
        usage = Usage(2001 + 100 * number + 7 * turn, 512 * (turn > 0), 20 + 10 * number + turn)
        turns = self.script[tag]
        said = turns[min(turn, len(turns) - 1)]
        if isinstance(said, str):
            return Answer(tag, turn, usage, said, [])
        calls = []
        for position, step in enumerate(said):
            name, arguments = self.translate(step, results)
            # As providers' ids do, it names one call of all times.
            call_id = f"call_{time.time_ns():x}_{tag.replace('/', '_')}_{turn}_{position}"
            calls.append(MadeCall(call_id, name, arguments, step))
        return Answer(tag, turn, usage, "", calls)


@contextmanager
def serving(model: ScriptedModel) -> Iterator[ScriptedModel]:
    """Serve the APIs on a free port of the loopback interface."""

    class Handler(_Handler):
        scripted = model

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


Chunks = Iterable[tuple[str | None, Any]]
"""The events of a streamed answer: the name of each, or None, and its data."""


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedModel
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._send("application/json", b"")

    def do_GET(self) -> None:
        self._send_json({"object": "list", "data": [], "models": [], "has_more": False})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        self.scripted.requests.append((self.path, body))
        if path.endswith(("/count_tokens", ":countTokens")):
            self._send_json({"input_tokens": 100, "totalTokens": 100})
            return
        protocol = next((p for ending, p in _PROTOCOLS.items() if path.endswith(ending)), None)
        if protocol is None:
            self._send_json({})
            return
        read, whole, streamed = protocol
        request = read(body)
        answer = self.scripted.answer(request)
        time.sleep(0.08)  # a model takes time; without it, several records have the same time
        number = len(self.scripted.answers)
        if not (body.get("stream") or path.endswith(":streamGenerateContent")):
            self._send_json(whole(answer, request.model, number))
            return
        events = "".join(
            (f"event: {name}\n" if name else "")
            + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
            for name, data in streamed(answer, request.model, number)
        )
        self._send("text/event-stream", events.encode())

    def _send_json(self, value: Any) -> None:
        self._send("application/json", json.dumps(value).encode())

    def _send(self, content_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("request-id", f"req_{time.time_ns():x}")
        self.end_headers()
        self.wfile.write(body)


def _text(content: Any) -> str:
    """Return all texts of a message's content, whatever the API."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        found = (content.get(key) for key in ("text", "content", "output", "error", "response"))
        return next((_text(each) for each in found if each), "")
    return ""


# --- Anthropic: /v1/messages ---------------------------------------------------------------------


def _read_anthropic(body: dict[str, Any]) -> Request:
    users = [each for each in body["messages"] if each["role"] == "user"]
    blocks = [
        block for each in users if isinstance(each["content"], list) for block in each["content"]
    ]
    return Request(
        [_text(each["content"]) for each in users],
        {
            block["tool_use_id"]: _text(block.get("content"))
            for block in blocks
            if block.get("type") == "tool_result"
        },
        [tool["name"] for tool in body.get("tools", [])],
        body.get("model", ""),
    )


def _whole_anthropic(answer: Answer, model: str, number: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
        for call in answer.calls
    ]
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    usage = answer.usage
    return {
        "id": f"msg_{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input - usage.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.output,
        },
    }


def _stream_anthropic(answer: Answer, model: str, number: int) -> Chunks:
    message = _whole_anthropic(answer, model, number)

    def event(kind: str, **fields: Any) -> tuple[str, Any]:
        return kind, {"type": kind, **fields}

    yield event("message_start", message=message | {"content": [], "stop_reason": None})
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            start: dict[str, Any] = {"text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            arguments = json.dumps(block["input"])
            start, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": arguments}
        yield event("content_block_start", index=index, content_block=block | start)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ending, usage=message["usage"])
    yield event("message_stop")


# --- OpenAI: /v1/responses -----------------------------------------------------------------------


def _read_responses(body: dict[str, Any]) -> Request:
    items = body["input"] if isinstance(body["input"], list) else []
    return Request(
        [
            _text(item.get("content"))
            for item in items
            if item.get("role") == "user" or item.get("type") == "agent_message"
        ],
        {
            item["call_id"]: _text(item.get("output"))
            for item in items
            if str(item.get("type")).endswith("_call_output")
        },
        [tool.get("name", tool["type"]) for tool in body.get("tools", [])],
        body.get("model", ""),
    )


def _whole_responses(answer: Answer, model: str, number: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    for call in answer.calls:
        namespace, _, name = call.name.rpartition(".")
        item = {
            "type": "function_call",
            "id": f"fc_{call.call_id}",
            "call_id": call.call_id,
            "name": name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        output.append(item | ({"namespace": namespace} if namespace else {}))
    if answer.text:
        output.append(
            {
                "type": "message",
                "id": f"msg_{number:04d}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": answer.text, "annotations": []}],
            }
        )
    usage = answer.usage
    return {
        "id": f"resp_{number:04d}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "status": "completed",
        "output": output,
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        },
    }


def _stream_responses(answer: Answer, model: str, number: int) -> Chunks:
    response = _whole_responses(answer, model, number)

    def event(kind: str, **fields: Any) -> tuple[str, Any]:
        return kind, {"type": kind, **fields}

    yield event("response.created", response=response | {"status": "in_progress", "output": []})
    for index, item in enumerate(response["output"]):
        yield event("response.output_item.added", output_index=index, item=item)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)


# --- OpenAI: /chat/completions -------------------------------------------------------------------


def _read_chat(body: dict[str, Any]) -> Request:
    messages = body["messages"]
    return Request(
        [_text(each.get("content")) for each in messages if each["role"] == "user"],
        {
            each["tool_call_id"]: _text(each.get("content"))
            for each in messages
            if each["role"] == "tool"
        },
        [tool["function"]["name"] for tool in body.get("tools", []) if "function" in tool],
        body.get("model", ""),
    )


def _usage_of_chat(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _whole_chat(answer: Answer, model: str, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = [
            {
                "index": index,
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for index, call in enumerate(answer.calls)
        ]
    reason = "tool_calls" if answer.calls else "stop"
    return {
        "id": f"chatcmpl-{number:04d}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _usage_of_chat(answer.usage),
    }


def _stream_chat(answer: Answer, model: str, number: int) -> Chunks:
    whole = _whole_chat(answer, model, number) | {"object": "chat.completion.chunk"}
    [choice] = whole["choices"]
    usage = whole.pop("usage")
    for delta, reason in ((choice["message"], None), ({}, choice["finish_reason"])):
        yield None, whole | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    yield None, whole | {"choices": [], "usage": usage}
    yield None, "[DONE]"


# --- Google: :generateContent --------------------------------------------------------------------


def _read_gemini(body: dict[str, Any]) -> Request:
    users = [each for each in body["contents"] if each.get("role") == "user"]
    responses = [
        part["functionResponse"]
        for each in users
        for part in each.get("parts", ())
        if "functionResponse" in part
    ]
    tools = [tool.get("functionDeclarations", []) for tool in body.get("tools", [])]
    return Request(
        # The program's own context comes first, and may be a part of the same message.
        [_text(each.get("parts")) for each in users],
        {each.get("id", ""): _text(each.get("response")) for each in responses},
        [each["name"] for declared in tools for each in declared],
        body.get("model", ""),
    )


def _whole_gemini(answer: Answer, model: str, number: int) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"functionCall": {"id": call.call_id, "name": call.name, "args": call.arguments}}
        for call in answer.calls
    ]
    if answer.text:
        parts.append({"text": answer.text})
    usage = answer.usage
    return {
        "candidates": [
            {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.input + usage.output,
        },
        "modelVersion": model,
        "responseId": f"response-{number:04d}",
    }


def _stream_gemini(answer: Answer, model: str, number: int) -> Chunks:
    yield None, _whole_gemini(answer, model, number)


_PROTOCOLS: dict[str, tuple[Callable[[dict[str, Any]], Request], Any, Any]] = {
    "/messages": (_read_anthropic, _whole_anthropic, _stream_anthropic),
    "/responses": (_read_responses, _whole_responses, _stream_responses),
    "/chat/completions": (_read_chat, _whole_chat, _stream_chat),
    ":generateContent": (_read_gemini, _whole_gemini, _stream_gemini),
    ":streamGenerateContent": (_read_gemini, _whole_gemini, _stream_gemini),
}
"""The functions that read a request, write an answer, and stream it, by the end of the path."""
