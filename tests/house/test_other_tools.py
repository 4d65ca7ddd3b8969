"""Documented snippets that send spans to Tracer and another tool, run with the real SDKs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.adapters.outline import outline
from tests.api.commands import serving_here
from tests.house.project_files import ROOT
from tests.tools.http_servers import Received, http_server, reply

pytestmark = pytest.mark.thorough

PAGE = (ROOT / "docs" / "get-started" / "other-tools.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
EXPORTER = SECTIONS.pop("Start the server")
TOOLS = [heading for heading, section in SECTIONS.items() if " install " in section]
WITHOUT_OTHER_SERVER = ("MLflow", "Laminar", "Logfire", "Strands Agents", "Mastra")
"""MLflow stores its traces in a file, Laminar sends them by gRPC, the others send none."""


@pytest.mark.parametrize("tool", TOOLS)
async def test_documented_snippet_sends_the_run_to_tracer_and_the_other_tool(
    tool: str, database_url: str, tmp_path: Path
) -> None:
    program = await _program(tmp_path, SECTIONS[tool])

    async with http_server(_other_tool) as other:
        with serving_here(database_url, tmp_path / "server") as url:
            environment = {**os.environ, **_settings(other.url, url)}
            environment |= _exports(SECTIONS[tool], url)
            await _run(*program, folder=tmp_path, environment=environment)
            async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
                run = await _only_run(client)
                tree = (await client.get(f"/api/plans/{run['rootPlanId']}/tree")).json()

    assert any("measure(" in line and "p-1" in line for line in outline(tree)), outline(tree)
    if tool not in WITHOUT_OTHER_SERVER:
        assert [each for each in other.received if len(each.body) > 100] != []


async def _only_run(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Return the run of the program. The server makes it from the spans a little later."""
    async with asyncio.timeout(60):
        while True:
            items = (await client.get("/api/runs")).json()["items"]
            if [each["status"] for each in items] == ["succeeded"]:
                return dict(items[0])
            await asyncio.sleep(0.2)


def _blocks(language: str, section: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)


async def _program(folder: Path, section: str) -> tuple[str, ...]:
    """Install what a section installs, and return the command that runs its snippet."""
    if scripts := _blocks("typescript", section):
        (install,) = _blocks("sh", section)
        await _run(*install.replace("\\\n", "").split(), folder=folder)
        (folder / "program.mjs").write_text("".join(scripts))
        return "node", "program.mjs"
    python = await _environment(folder, EXPORTER + section)
    return python, "-c", "".join(_blocks("python", EXPORTER) + _blocks("python", section))


async def _environment(folder: Path, section: str) -> str:
    """Install what a section installs, and return the Python of the environment."""
    uv = str(Path(sys.executable).parent / "uv")
    python = str(folder / "environment" / "bin" / "python")
    await _run(uv, "venv", "--quiet", "--python", sys.executable, str(folder / "environment"))
    for packages in re.findall(r"^pip install (.+)$", "".join(_blocks("sh", section)), re.M):
        names = packages.replace("'", "").split()
        await _run(uv, "pip", "install", "--quiet", "--python", python, *names)
    return python


async def _run(
    *command: str, folder: Path | None = None, environment: dict[str, str] | None = None
) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


def _settings(other: str, tracer: str) -> dict[str, str]:
    """Return the environment variables of a user of each tool."""
    return {
        "TRACER_URL": tracer,
        "LANGFUSE_PUBLIC_KEY": "pk",
        "LANGFUSE_SECRET_KEY": "sk",
        "LANGFUSE_BASE_URL": other,
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_API_KEY": "none",
        "LANGSMITH_ENDPOINT": other,
        "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db",
        "LMNR_PROJECT_API_KEY": "none",
        "LMNR_BASE_URL": other.rpartition(":")[0],
        "LOGFIRE_SEND_TO_LOGFIRE": "false",
        "TRACELOOP_BASE_URL": other,
        "TRACELOOP_API_KEY": "none",
        "TRACELOOP_TELEMETRY": "false",
        "OPENLIT_TRACES": f"{other}/v1/traces",
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": other,
    }


def _exports(section: str, tracer: str) -> dict[str, str]:
    """Return the variables that a section exports."""
    lines = "".join(_blocks("sh", section)).replace("$TRACER_URL", tracer)
    return {
        name: value.strip('"') for name, value in re.findall(r"^export (\w+)=(.+)$", lines, re.M)
    }


def _other_tool(request: Received) -> bytes:
    """Accept everything, and answer as a model that measures first."""
    if not request.path.endswith("/chat/completions"):
        return reply(json={})
    has_measured = any(each["role"] == "tool" for each in request.json["messages"])
    function = {"name": "measure", "arguments": '{"patient": "p-1"}'}
    call = {"index": 0, "id": "call_0", "type": "function", "function": function}
    message = {"content": "It is 121/79."} if has_measured else {"tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "stop" if has_measured else "tool_calls"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    answer = {"id": "1", "created": 1, "model": "gpt-5-mini", "usage": usage}
    if request.json.get("stream"):
        chunk = {
            **answer,
            "object": "chat.completion.chunk",
            "choices": [{**choice, "delta": message}],
        }
        events = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        return reply(body=events, content_type="text/event-stream")
    choices = [{**choice, "message": {"role": "assistant", **message}}]
    return reply(json={**answer, "object": "chat.completion", "choices": choices})
