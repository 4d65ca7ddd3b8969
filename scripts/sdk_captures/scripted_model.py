"""A provider that gives the answers of a scenario, and a receiver that stores OTLP requests.

Both listen on loopback. The provider has the Chat Completions and the Responses API of OpenAI, with
and without streaming.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scenarios import PARAMETERS, REFUSAL, Scenario, Turn

MODEL = "gpt-5-mini"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            body = b"".join(parts)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve_model(scenario: Scenario) -> tuple[str, ThreadingHTTPServer]:
    """Serve the scripted model, and return its base URL and the server."""

    class Model(_Handler):
        def do_POST(self) -> None:
            request = json.loads(self._body())
            is_chat = self.path.endswith("/chat/completions")
            items = request["messages"] if is_chat else request["input"]
            if isinstance(items, str):
                items = [{"role": "user", "content": items}]
            turn = _turn(scenario, items)
            if turn.is_refused:
                error = {"error": {"message": REFUSAL, "type": "invalid_request_error"}}
                self._answer(400, "application/json", json.dumps(error).encode())
                return
            answer = _chat(turn) if is_chat else _response(turn)
            if not request.get("stream"):
                self._answer(200, "application/json", json.dumps(answer).encode())
                return
            chunks = _chat_chunks(answer) if is_chat else _response_events(answer)
            self._answer(200, "text/event-stream", "".join(chunks).encode())

    return _serve(Model, "/v1")


def _turn(scenario: Scenario, items: list[dict[str, Any]]) -> Turn:
    """Return the turn that follows the messages: one more than the model's answers in them."""
    request = next(_text(each["content"]) for each in items if each.get("role") == "user")
    # Some frameworks wrap the request of a sub-agent in a text of their own.
    turns = next(turns for asked, turns in scenario.turns.items() if asked in request)
    done = 0
    was_model = False
    for each in items:
        is_model = each.get("role") == "assistant" or each.get("type") == "function_call"
        done += is_model and not was_model
        was_model = is_model
    return turns[done]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _chat(turn: Turn) -> dict[str, Any]:
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
        }
        for call in turn.calls
    ]
    message = {
        "role": "assistant",
        "content": turn.text or None,
        **({"tool_calls": calls} if calls else {}),
    }
    return {
        "id": f"chatcmpl-{turn.input}",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
        ],
        "usage": {
            "prompt_tokens": turn.input,
            "completion_tokens": turn.output,
            "total_tokens": turn.input + turn.output,
            "prompt_tokens_details": {"cached_tokens": turn.cached},
        },
    }


def _chat_chunks(answer: dict[str, Any]) -> Iterator[str]:
    choice = answer["choices"][0]
    head = {
        **{key: answer[key] for key in ("id", "created", "model")},
        "object": "chat.completion.chunk",
    }
    message = dict(choice["message"])
    if "tool_calls" in message:
        message["tool_calls"] = [
            {"index": at, **each} for at, each in enumerate(message["tool_calls"])
        ]
    deltas: list[tuple[dict[str, Any], str | None]] = [
        (message, None),
        ({}, choice["finish_reason"]),
    ]
    for delta, reason in deltas:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        yield f"data: {json.dumps({**head, 'choices': choices})}\n\n"
    yield f"data: {json.dumps({**head, 'choices': [], 'usage': answer['usage']})}\n\n"
    yield "data: [DONE]\n\n"


def _response(turn: Turn) -> dict[str, Any]:
    return {
        "id": f"resp_{turn.input}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": MODEL,
        "output": [*_response_output(turn)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": turn.input,
            "input_tokens_details": {"cached_tokens": turn.cached},
            "output_tokens": turn.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": turn.input + turn.output,
        },
    }


def _response_output(turn: Turn) -> Iterator[dict[str, Any]]:
    if turn.text:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        yield {
            "type": "message",
            "id": f"msg_{turn.input}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    for call in turn.calls:
        yield {
            "type": "function_call",
            "id": f"fc_{turn.input}_{call.call_id}",
            "call_id": call.call_id,
            "name": call.tool,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }


def _response_events(answer: dict[str, Any]) -> Iterator[str]:
    event = {"type": "response.completed", "sequence_number": 0, "response": answer}
    yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def serve_receiver(folder: Path) -> tuple[str, ThreadingHTTPServer]:
    """Store the bodies of requests to `/v1/traces`, and return the base URL and the server.

    Other requests, such as those for a tool's own API, get an empty JSON object.
    """
    lock = threading.Lock()
    folder.mkdir(parents=True, exist_ok=True)

    class Receiver(_Handler):
        def do_POST(self) -> None:
            body = self._body()
            if self.path != "/v1/traces":
                self._answer(200, "application/json", b"{}")
                return
            kind = self.headers.get("Content-Type", "")
            with lock:
                number = len([*folder.glob("*.gz")])
                name = f"{number:03}.json.gz" if "json" in kind else f"{number:03}.bin.gz"
                (folder / name).write_bytes(gzip.compress(_neutral(body), mtime=0))
            self._answer(200, kind, b"{}" if "json" in kind else b"")

        do_GET = do_PUT = do_PATCH = do_POST  # noqa: N815 (the base class's names)

    return _serve(Receiver, "")


def _neutral(body: bytes) -> bytes:
    """Replace the paths of this machine by others of the same length."""
    for path in (sys.prefix, sys.base_prefix, str(Path(__file__).parent)):
        body = body.replace(path.encode(), b"/".ljust(len(path), b"x"))
    return body


def _serve(handler: type[_Handler], path: str) -> tuple[str, ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}{path}", server


def tool_schema(tool: str) -> dict[str, Any]:
    """Return the definition of a tool as a request to the Chat Completions API has it."""
    properties = {PARAMETERS[tool]: {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": [PARAMETERS[tool]]}
    return {"type": "function", "function": {"name": tool, "parameters": parameters}}
