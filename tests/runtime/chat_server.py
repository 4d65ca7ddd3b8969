"""A local server that speaks chat completions: a scripted model behind HTTP, with faults."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from tracer.runtime.chat_model import ChosenCall, Generation, Message, ToolSpec
from tracer.runtime.scripted_model import ScriptedModel


@dataclass(frozen=True)
class Fault:
    """An answer that comes in place of the model's."""

    status: int
    body: bytes = b'{"error": {"message": "not now"}}'
    headers: Mapping[str, str] = field(default_factory=dict)


class ChatServer:
    """Answers as its model's scripts say, after the faults that it was told to begin with."""

    def __init__(self, model: ScriptedModel, *faults: Fault) -> None:
        self.model = model
        self.faults = deque(faults)
        self.requests: list[dict[str, Any]] = []
        self.base_url = ""
        self._lock = threading.Lock()

    def answer(self, request: dict[str, Any]) -> Fault:
        with self._lock:
            self.requests.append(request)
            if self.faults:
                return self.faults.popleft()
        messages = [_message(each) for each in request["messages"]]
        tools = [ToolSpec(each["function"]["name"], "", {}) for each in request.get("tools", ())]
        generation = asyncio.run(self.model.complete(messages, tools))
        return Fault(200, orjson.dumps(_completion(generation, request["model"])))


@contextmanager
def serving(server: ChatServer) -> Iterator[ChatServer]:
    """Serve on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = server.answer(orjson.loads(body))
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        server.base_url = f"http://127.0.0.1:{http.server_address[1]}/v1"
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def _message(wire: dict[str, Any]) -> Message:
    calls = tuple(
        ChosenCall(each["function"]["name"], each["function"]["arguments"], each["id"])
        for each in wire.get("tool_calls", ())
    )
    return Message(wire["role"], wire["content"] or "", calls)


def _completion(generation: Generation, model: str) -> dict[str, Any]:
    calls = [
        {
            "id": each.provider_call_id,
            "type": "function",
            "function": {"name": each.name, "arguments": each.arguments},
        }
        for each in generation.tool_calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": generation.text or None}
    if calls:
        message["tool_calls"] = calls
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{model}-2026",
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
