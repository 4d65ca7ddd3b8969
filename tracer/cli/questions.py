"""The commands that ask the server about runs, and `tracer mcp`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tracer.cli.http import check, server_of
from tracer.cli.terminal import AsJson, run_command
from tracer.questions import Asked
from tracer.settings import Settings

Budget = Annotated[int, typer.Option(help="The most tokens of the answer, at least 300.")]


async def ask(settings: Settings, question: str, asked: dict[str, Any], *, as_json: bool) -> str:
    """Return the server's answer to a question, as JSON or as text."""
    given = {name: value for name, value in asked.items() if value is not None}
    accept = "application/json" if as_json else "text/plain"
    async with server_of(settings) as server:
        answer = await server.get(
            f"api/questions/{question}", params=given, headers={"Accept": accept}
        )
        await check(answer)
        return answer.text


def _print(question: str, asked: dict[str, Any], as_json: bool) -> None:
    async def run(settings: Settings) -> None:
        show(await ask(settings, question, asked, as_json=as_json))

    run_command(run)


STYLES = {r"FAILED|ABANDONED|\berror\b": "red", r"\br[0-9a-f]{10}\b": "cyan", r"RUNNING": "yellow"}


def show(text: str) -> None:
    """Print an answer: in colour on a terminal, without escapes in a pipe."""
    if not sys.stdout.isatty():
        typer.echo(text.rstrip("\n"))
        return
    shown = Text(text.rstrip("\n"))
    for pattern, style in STYLES.items():
        shown.highlight_regex(pattern, style)
    Console(highlight=False, soft_wrap=True).print(shown)


def show_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A handle or an id.")],
    budget: Budget = 1_500,
    as_json: AsJson = False,
) -> None:
    """Outline a run, or what is below one record, folded to a budget of tokens."""
    _print("show", {"run": run, "budget": budget}, as_json)


def why(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The latest failed run if omitted."),
    ] = None,
    budget: Budget = 1_500,
    as_json: AsJson = False,
) -> None:
    """Explain why a run failed, hangs, was abandoned or was slow."""
    _print("why", {"run": run, "budget": budget}, as_json)


def mcp() -> None:
    """Serve the questions as MCP tools over stdio, from the server at TRACER_URL."""
    from importlib.metadata import version

    from tracer.errors import missing_extra

    try:
        from mcp.server.stdio import stdio_server

        from tracer.questions.mcp_server import Context, mcp_server
    except ModuleNotFoundError as error:
        raise typer.BadParameter(str(missing_extra("tracer mcp", "mcp", error))) from error

    async def run(settings: Settings) -> None:
        async def answer(name: str, asked: Asked, _: Context) -> str:
            given = asked.model_dump(exclude_none=True, by_alias=True)
            return await ask(settings, name, given, as_json=False)

        server = mcp_server(answer, version("tracer-lineage"))
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    run_command(run, terminated=0)
