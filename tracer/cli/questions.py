"""The commands that ask the server about runs, and `tracer mcp`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.text import Text

from tracer.cli.http import check, server_of
from tracer.cli.terminal import AsJson, run_command
from tracer.errors import NOTHING_FOUND
from tracer.questions import Asked
from tracer.questions.rows import SAME
from tracer.records.pages import RunOrder
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


def _print(question: str, asked: dict[str, Any], as_json: bool) -> str:
    """Print the answer to a question, and return it."""
    answers: list[str] = []

    async def run(settings: Settings) -> None:
        answers.append(await ask(settings, question, asked, as_json=as_json))

    run_command(run)
    show(answers[0])
    return answers[0]


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


Since = Annotated[str | None, typer.Option(help="Such as 24h, 7d, or RFC 3339.")]
Reference = Annotated[str, typer.Argument(metavar="RUN", help="A handle or an id.")]


def list_runs(
    q: Annotated[str | None, typer.Argument(metavar="[WORDS]", help="Words in the run.")] = None,
    status: Annotated[str | None, typer.Option(help="Such as failed or running.")] = None,
    agent: Annotated[str | None, typer.Option(help="An agent that took part.")] = None,
    user: Annotated[str | None, typer.Option(help="For whom the run was made.")] = None,
    session: Annotated[str | None, typer.Option(help="The conversation's id.")] = None,
    tool: Annotated[str | None, typer.Option(help="A tool that was called.")] = None,
    since: Since = None,
    until: Since = None,
    sort: Annotated[RunOrder, typer.Option(help="With a minus: descending.")] = RunOrder.LATEST,
    limit: Annotated[int, typer.Option(help="The most runs.")] = 20,
    budget: Budget = 4_000,
    as_json: AsJson = False,
) -> None:
    """List runs: a line each with question, answer, or where its failure began."""
    _print("list", _given(locals()), as_json)


def show_run(run: Reference, budget: Budget = 1_500, as_json: AsJson = False) -> None:
    """Outline a run, or what is below one record, folded to a budget of tokens."""
    _print("show", _given(locals()), as_json)


def why(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The latest failed run if omitted.")
    ] = None,
    budget: Budget = 1_500,
    as_json: AsJson = False,
) -> None:
    """Explain why a run failed, hangs, was abandoned or was slow."""
    _print("why", _given(locals()), as_json)


def show_record(
    id_: Annotated[str, typer.Argument(metavar="ID", help="A handle or an id.")],
    pointer: Annotated[str, typer.Argument(help="Such as /result/items/0.")] = "",
    start: Annotated[int, typer.Option("--from", help="The first character.")] = 0,
    length: Annotated[int | None, typer.Option(help="The number of characters.")] = None,
    budget: Budget = 4_000,
    as_json: AsJson = False,
) -> None:
    """Print one record whole, or a slice of one of its payloads."""
    asked = {"id": id_, "pointer": pointer, "from": start, "length": length, "budget": budget}
    _print("record", asked, as_json)


def diff(
    a: Reference,
    b: Annotated[str, typer.Argument(metavar="OTHER", help="A handle or an id.")],
    budget: Budget = 4_000,
    as_json: AsJson = False,
) -> None:
    """Compare two runs. Exit with 3 if they differ."""
    found = _print("diff", _given(locals()), as_json)
    if not (orjson.loads(found)["differs"] is False if as_json else SAME in found.splitlines()):
        raise typer.Exit(NOTHING_FOUND)


def stats(
    by: Annotated[str, typer.Option(help="tool, model, agent, user or day.")] = "tool",
    since: Since = "7d",
    until: Since = None,
    budget: Budget = 4_000,
    as_json: AsJson = False,
) -> None:
    """Print calls and failures by tool, or spend by model, agent, user or day."""
    _print("stats", _given(locals()), as_json)


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command that are arguments of its question."""
    return {name: value for name, value in arguments.items() if name != "as_json"}


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
