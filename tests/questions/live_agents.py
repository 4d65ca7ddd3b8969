"""Let the real Claude Code and Codex ask Tracer over MCP, with a scripted model.

    python -m tests.questions.live_agents FOLDER

FOLDER has `node_modules` with both programs. A server with a failed run is at TRACER_URL. Print the
tools that the model was offered, and the result of `why` that it received.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.otel.coding_agents.live.models import ScriptedModel, serving
from tests.otel.coding_agents.live.programs import CLAUDE_CODE, CODEX, Program, Run
from tests.otel.coding_agents.live.scenarios import Scenario, Shell, Step

PROMPT = "[why] Which record made the latest failed run fail?"


@dataclass(frozen=True)
class Agent:
    """A program, with the name that its model uses for the tool `why`."""

    setup: str
    program: Program
    tool: str
    binary: str


AGENTS = (
    Agent(
        "claude-code", CLAUDE_CODE, "mcp__tracer__why", "@anthropic-ai/claude-code-linux-x64/claude"
    ),
    Agent(
        "codex",
        CODEX,
        "mcp__tracer.why",
        "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    ),
)


def ask(agent: Agent, modules: Path) -> dict[str, Any]:
    """Return the tools of Tracer that the model was offered, and the result that it received."""

    def translate(_: Step, __: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        return agent.tool, {}

    scenario = Scenario((PROMPT,), {"why": ((Shell(""),), "It is named above.")})
    model = ScriptedModel(scenario, scenario.script, translate)
    with TemporaryDirectory() as folder, serving(model):
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        run = Run(home, work, model, modules / agent.binary)
        command = agent.program.command(run)
        if agent.setup == "claude-code":
            command = [command[0], "-p", f"--allowedTools={agent.tool}"]
        environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "TRACER_URL": os.environ["TRACER_URL"],
            "TRACER_API_KEY": os.environ.get("TRACER_API_KEY", ""),
            **agent.program.environment(run),
        }
        if not environment["TRACER_API_KEY"]:
            del environment["TRACER_API_KEY"]
        tracer = str(Path(sys.executable).with_name("tracer"))
        subprocess.run([tracer, "setup", agent.setup], env=environment, check=True)
        done = subprocess.run(
            [*command, PROMPT],
            env=environment,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=120,
        )
    bodies = [body for _, body in model.requests]
    # Claude Code names tools of MCP servers in a text, and sends their schemas on demand.
    tools = sorted(set(re.findall(r"mcp__tracer__\w+", str(bodies))) or set(_tools(bodies)))
    return {
        "output": done.stdout[-500:],
        "errors": done.stderr[-800:],
        "tools": tools,
        "results": model.results,
    }


def _tools(bodies: list[Any]) -> list[str]:
    return [
        f"{tool['name']}.{each['name']}"
        for body in bodies
        for tool in (body or {}).get("tools", ())
        for each in tool.get("tools", ())
        if "tracer" in tool["name"]
    ]


if __name__ == "__main__":
    for each in AGENTS:
        print(each.setup)
        for key, value in ask(each, Path(sys.argv[1], "node_modules")).items():
            print(f"--- {key}\n{value}")
