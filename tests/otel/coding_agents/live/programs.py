"""The coding agents: how each is configured, started and told to use the scripted model.

The variables and files that send telemetry come from the page docs/get-started/coding-agents.md:
its first block of commands below the program's heading is executed as it stands.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.otel.coding_agents.live.models import MadeCall, ScriptedModel
from tests.otel.coding_agents.live.scenarios import (
    Await,
    Delegate,
    Finish,
    Scenario,
    Shell,
    Step,
    Turn,
)

PAGE = Path(__file__).parents[4] / "docs" / "get-started" / "coding-agents.md"
_MODEL = "gpt-5.1"
_SECONDS = 300
"""How long a program may take for a scenario."""


@dataclass(frozen=True)
class Run:
    """A program that runs a scenario."""

    home: Path
    """The program's home, which is empty before."""
    work: Path
    """The folder that the program works in."""
    model: ScriptedModel
    binary: Path


@dataclass(frozen=True)
class Program:
    """A coding agent that npm has."""

    title: str
    """The heading on the page."""
    emitter: str
    """The name in docs/reference/emitters.md."""
    package: str
    binary: str
    """The program, below `node_modules`."""
    scenarios: tuple[str, ...]
    translate: Callable[[Step, Mapping[str, str]], tuple[str, dict[str, Any]]]
    command: Callable[[Run], list[str]]
    """Returns the command without the prompt, and writes settings that the command needs."""
    environment: Callable[[Run], dict[str, str]] = lambda _: {}
    awaits: bool = False
    """Whether a call of its own waits for sub-agents."""
    answers_by_call: bool = False
    """Whether sub-agents answer by a call."""
    sends_batches: bool = False
    """Whether each model call and each batch of calls of the main agent is a trace of its own."""
    serves: bool = False
    """Whether a server of the program does the work."""
    prompts_on_input: tuple[str, ...] = ()
    """Options with which the program reads one prompt after another from standard input."""

    def script_of(self, scenario: Scenario) -> Mapping[str, tuple[Turn, ...]]:
        """Return the model's answers, with calls that only this program needs."""
        script = scenario.script
        if self.awaits:
            script = {tag: tuple(_awaited(turns)) for tag, turns in script.items()}
        if self.answers_by_call:
            script = {
                tag: (*turns[:-1], (Finish(str(turns[-1])),)) if "/" in tag else turns
                for tag, turns in script.items()
            }
        return script


def _awaited(turns: tuple[Turn, ...]) -> Iterator[Turn]:
    for turn in turns:
        yield turn
        if not isinstance(turn, str) and any(isinstance(step, Delegate) for step in turn):
            yield (Await(),)


def settings_on_page(title: str) -> str:
    """Return the first block of commands below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return section.partition("```sh\n")[2].partition("\n```")[0]


def run_program(program: Program, run: Run, tracer: str, key: str) -> str:
    """Run a scenario to its end; return the program's standard output.

    Args:
        program: The program.
        run: Its folders and its model.
        tracer: The address of Tracer.
        key: The key that the program sends.
    """
    command = program.command(run)
    block = settings_on_page(program.title).replace("http://127.0.0.1:8420", tracer)
    script = f'set -e\n{block.replace("Bearer KEY", f"Bearer {key}")}\nexec "$@"'
    environment = {
        "HOME": str(run.home),
        "PATH": os.environ["PATH"],
        "SHELL": "/bin/bash",
        "TRACER_API_KEY": key,
        **program.environment(run),
    }
    options: dict[str, Any] = {"cwd": run.work, "env": environment, "start_new_session": True}
    shell = ["bash", "-c", script, "bash"]
    scenario = run.model.scenario
    with _served(program, run, shell, options) as attached:
        line = [*shell, *command, *attached]
        if len(scenario.prompts) > 1:
            return _converse([*line, *program.prompts_on_input], scenario.prompts, run, options)
        with (run.home / "errors.log").open("w") as errors:
            process = subprocess.Popen(
                [*line, scenario.prompts[0]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                **options,
            )
            if scenario.killed_in is not None:
                _wait_until(lambda: _asked_for(run.model, scenario.killed_in))
                time.sleep(2)
                os.killpg(process.pid, signal.SIGKILL)
            try:
                output, _ = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
            return str(output, "utf-8", "replace")


def _converse(line: list[str], prompts: tuple[str, ...], run: Run, options: dict[str, Any]) -> str:
    """Write prompts to a program, each after the answer to the one before."""
    output = run.home / "output.jsonl"
    with output.open("w") as written, (run.home / "errors.log").open("w") as errors:
        process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=written, stderr=errors, text=True, **options
        )
        assert process.stdin is not None
        for number, prompt in enumerate(prompts, 1):
            content = [{"type": "text", "text": prompt}]
            message = {"type": "user", "message": {"role": "user", "content": content}}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            _wait_until(partial(_has_results, output, number))
        process.stdin.close()
        process.wait(timeout=_SECONDS)
    return output.read_text()


def _has_results(output: Path, count: int) -> bool:
    return output.read_text().count('"type":"result"') >= count


@contextmanager
def _served(
    program: Program, run: Run, shell: list[str], options: dict[str, Any]
) -> Iterator[list[str]]:
    """Run the program's server, if it has one; yield the options that attach to it."""
    if not program.serves:
        yield []
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with (run.home / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*shell, str(run.binary), "serve", "--port", str(port), "--hostname", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **options,
        )
        try:
            _wait_until(lambda: _listens(port))
            yield ["--attach", address, "--dir", str(run.work)]
            time.sleep(8)  # it sends its spans every five seconds
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _asked_for(model: ScriptedModel, command: str | None) -> bool:
    return any(
        isinstance(call.step, Shell) and call.step.command == command
        for answer in model.answers
        for call in answer.calls
    )


def _wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not is_true() and time.monotonic() < end:
        time.sleep(0.2)


# --- Claude Code ---------------------------------------------------------------------------------


def _claude_call(step: Step, _: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    if isinstance(step, Delegate):
        arguments: dict[str, Any] = {
            "description": f"part {step.to}",
            "prompt": f"[{step.to}] {step.prompt}",
            "subagent_type": "general-purpose",
        }
        if step.in_background is not None:
            arguments["run_in_background"] = step.in_background
        return "Agent", arguments
    return "Bash", {"command": _command_of(step), "description": "step"}


CLAUDE_CODE = Program(
    "Claude Code",
    "claude-code",
    "@anthropic-ai/claude-code",
    "@anthropic-ai/claude-code-{platform}/claude",
    ("single", "parallel", "nested", "background", "killed", "turns"),
    _claude_call,
    # Not --dangerously-skip-permissions, which root may not use.
    lambda run: [
        *(str(run.binary), "-p", "--allowedTools=Bash,Agent"),
        *("--output-format", "stream-json", "--verbose"),
    ],
    lambda run: {
        "ANTHROPIC_BASE_URL": run.model.address,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    prompts_on_input=("--input-format", "stream-json"),
)


def _command_of(step: Step) -> str:
    assert isinstance(step, Shell), step
    return step.command


# --- Codex ---------------------------------------------------------------------------------------


def _codex_call(step: Step, results: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    if isinstance(step, Delegate):
        return "multi_agent_v1.spawn_agent", {"message": f"[{step.to}] {step.prompt}"}
    if isinstance(step, Await):
        opened = [json.loads(each) for each in results.values() if each.startswith('{"agent_id"')]
        return "multi_agent_v1.wait_agent", {
            "targets": [each["agent_id"] for each in opened],
            "timeout_ms": 60_000,
        }
    return "exec_command", {"cmd": _command_of(step)}


def _codex_command(run: Run) -> list[str]:
    settings = run.home / ".codex" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(
        f"""model = "{_MODEL}-codex"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.local]
name = "local"
base_url = "{run.model.address}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
"""
    )
    return [str(run.binary), "exec", "--skip-git-repo-check"]


CODEX = Program(
    "Codex CLI",
    "codex",
    "@openai/codex",
    "@openai/codex-{platform}/vendor/{triple}/bin/codex",
    ("pair",),
    _codex_call,
    _codex_command,
    lambda _: {"MODEL_KEY": "none"},
    awaits=True,
)


# --- OpenCode ------------------------------------------------------------------------------------


def _opencode_call(step: Step, _: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    if isinstance(step, Delegate):
        return "task", {
            "description": f"part {step.to}",
            "prompt": f"[{step.to}] {step.prompt}",
            "subagent_type": "general",
        }
    return "bash", {"command": _command_of(step), "description": "step"}


def _opencode_command(run: Run) -> list[str]:
    settings = run.home / ".config" / "opencode" / "opencode.json"
    settings.parent.mkdir(parents=True)
    model = {"name": _MODEL, "tool_call": True, "limit": {"context": 200_000, "output": 8000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "local",
        "options": {"baseURL": f"{run.model.address}/v1", "apiKey": "none"},
        "models": {_MODEL: model},
    }
    settings.write_text(
        json.dumps(
            {
                "model": f"local/{_MODEL}",
                "small_model": f"local/{_MODEL}",
                "autoupdate": False,
                "share": "disabled",
                "permission": "allow",
                "experimental": {"openTelemetry": True},
                "provider": {"local": provider},
            }
        )
    )
    return [str(run.binary), "run"]


OPENCODE = Program(
    "OpenCode",
    "opencode",
    "opencode-ai",
    "opencode-{platform}/bin/opencode",
    ("pair",),
    _opencode_call,
    _opencode_command,
    lambda _: {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    },
    serves=True,
)


# --- GitHub Copilot CLI --------------------------------------------------------------------------


def _copilot_call(step: Step, _: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    if isinstance(step, Delegate):
        return "task", {
            "name": step.to.replace("/", "-"),
            "description": f"part {step.to}",
            "prompt": f"[{step.to}] {step.prompt}",
            "agent_type": "general-purpose",
        }
    return "bash", {"command": _command_of(step), "description": "step"}


COPILOT_CLI = Program(
    "GitHub Copilot CLI",
    "copilot-cli",
    "@github/copilot",
    "@github/copilot-{platform}/copilot",
    ("pair",),
    _copilot_call,
    lambda run: [str(run.binary), "--allow-all-tools", "--no-color", "--prompt"],
    lambda run: {
        "COPILOT_PROVIDER_BASE_URL": f"{run.model.address}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": _MODEL,
        "COPILOT_AUTO_UPDATE": "false",
    },
)


# --- Gemini CLI ----------------------------------------------------------------------------------


def _gemini_call(step: Step, _: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    if isinstance(step, Delegate):
        prompt = f"[{step.to}] {step.prompt}"
        return "invoke_agent", {"agent_name": "generalist", "prompt": prompt}
    if isinstance(step, Finish):
        return "complete_task", {"result": {"response": step.answer}}
    return "run_shell_command", {"command": _command_of(step), "description": "step"}


def _gemini_command(run: Run) -> list[str]:
    # The variable for the address alone would choose another way to authenticate.
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (run.work / ".gemini").mkdir()
    (run.work / ".gemini" / "settings.json").write_text(json.dumps(settings))
    return [
        *("node", str(run.binary), "--approval-mode=yolo", "--skip-trust"),
        *("--model", "gemini-2.5-pro", "--prompt"),
    ]


GEMINI_CLI = Program(
    "Gemini CLI",
    "gemini-cli",
    "@google/gemini-cli",
    "@google/gemini-cli/bundle/gemini.js",
    ("pair",),
    _gemini_call,
    _gemini_command,
    lambda run: {
        "GOOGLE_GEMINI_BASE_URL": run.model.address,
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    },
    answers_by_call=True,
    sends_batches=True,
)

PROGRAMS = (CLAUDE_CODE, CODEX, OPENCODE, COPILOT_CLI, GEMINI_CLI)

__all__ = ["PROGRAMS", "MadeCall", "Program", "Run", "run_program", "settings_on_page"]
