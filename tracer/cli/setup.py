"""The `tracer setup` command, which lets a coding agent read the server's runs over MCP."""

from __future__ import annotations

import json
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.terminal import console, report_errors
from tracer.errors import BadRequest
from tracer.settings import LOCAL_SERVER, read_settings


class Agent(StrEnum):
    """A program that can be set up."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"


def setup(
    agent: Annotated[Agent, typer.Argument(metavar="claude-code|codex", help="The program.")],
    is_printed: Annotated[
        bool, typer.Option("--print", help="Print the configuration, and change nothing.")
    ] = False,
) -> None:
    """Let a coding agent read runs: add the MCP server at TRACER_URL to its settings.

    The settings name TRACER_API_KEY, whose value the program reads from its environment. They are
    in a file of the user, never of a project.
    """
    with report_errors():
        settings = read_settings()
        url = f"{(settings.url or LOCAL_SERVER).rstrip('/')}/mcp"
        has_key = settings.api_key is not None
        if agent is Agent.CODEX:
            path = Path(os.environ.get("CODEX_HOME") or "~/.codex").expanduser() / "config.toml"
            with_server = _codex
        else:
            path = Path(os.environ.get("CLAUDE_CONFIG_DIR") or "~").expanduser() / ".claude.json"
            with_server = _claude
        if is_printed:
            typer.echo(f"# {path}\n{with_server('', url, has_key=has_key).rstrip()}")
            return
        _write(path, with_server(_read(path), url, has_key=has_key))
        console.print(f"{path} names the MCP server at {url}. Restart {agent.value}.", markup=False)
        if not has_key:
            console.print("TRACER_API_KEY is not set. If the server needs keys, set it and repeat.")


def _claude(before: str, url: str, *, has_key: bool) -> str:
    try:
        settings = json.loads(before or "{}")
        servers = settings.setdefault("mcpServers", {})
    except (ValueError, AttributeError):
        raise BadRequest("~/.claude.json is not a JSON object. Correct it, and repeat.") from None
    headers = {"headers": {"Authorization": "Bearer ${TRACER_API_KEY}"}} if has_key else {}
    servers["tracer"] = {"type": "http", "url": url, **headers}
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


_SECTION = re.compile(
    r"^\[mcp_servers\.tracer[\].].*?(?=^\[(?!mcp_servers\.tracer[\].])|\Z)", re.M | re.S
)


def _codex(before: str, url: str, *, has_key: bool) -> str:
    rest = _SECTION.sub("", before).rstrip()
    key = 'bearer_token_env_var = "TRACER_API_KEY"\n' if has_key else ""
    return f"{rest}\n\n[mcp_servers.tracer]\nurl = {json.dumps(url)}\n{key}".lstrip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"Can't read {path}: {error}.") from error


def _write(path: Path, text: str) -> None:
    """Replace a file at once. Only the user may read it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = path.resolve()  # of a link, as people with their settings in a repository have
        new = target.with_name(f".{target.name}.tracer")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        new.replace(target)
    except OSError as error:
        raise BadRequest(f"Can't write {path}: {error.strerror}.") from error
