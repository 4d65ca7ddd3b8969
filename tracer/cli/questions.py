"""The commands that ask the server about runs, `tracer tail` and `tracer mcp`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
import orjson
import typer
from rich.console import Console
from rich.text import Text

from tracer.cli.http import check, run_id_of, server_of
from tracer.cli.terminal import AsJson, run_command
from tracer.errors import NOTHING_FOUND
from tracer.questions import Asked, duration, handle, joined, name, quoted
from tracer.questions.rows import SAME
from tracer.reading import Refused
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


# --- Follow runs.

ENDED = ("succeeded", "failed", "cancelled", "abandoned")

RETRY_SECONDS = 1.0
"""How long to wait for a server that has stopped before the next attempt."""

IDS = {"plan": "planId", "step": "stepId", "thinkAct": "thinkActId", "toolCall": "toolCallId"}


def tail(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Handles or ids; all that run now if omitted."),
    ] = None,
) -> None:
    """Print starts, ends and failures in runs as they happen, until the runs have ended.

    If the server is restarted, continue where the connection ended.
    """

    async def run(settings: Settings) -> None:
        async with server_of(settings) as server:
            chosen = [await run_id_of(server, each) for each in runs or ()]
            if not chosen:
                answer = await server.get("api/runs", params={"status": "running", "limit": 50})
                await check(answer)
                chosen = [each["rootPlanId"] for each in answer.json()["items"]]
            if not chosen:
                show("No run is running.")
            await asyncio.gather(*(_follow(server, each) for each in chosen))

    run_command(run)


async def _follow(server: httpx2.AsyncClient, run_id: str) -> None:
    """Print the changes of a run until it has ended. Reconnect when the server is back."""
    seen: dict[str, str] = {}
    after: str | None = None
    is_connected = False
    while True:
        try:
            if after is None:
                run = await server.get(f"api/runs/{run_id}")
                await check(run)
                if (status := run.json()["status"]) in ENDED:
                    show(f"{handle(run_id)} has ended: {status}. Read it with tracer show.")
                    return
                after, is_connected = run.json()["revision"], True
            async for event in _events(server, run_id, after):
                if event.get("event") == "deleted":
                    show(f"{handle(run_id)} was deleted")
                    return
                after = event.get("id", after)
                if event.get("event") == "reset":
                    show(f"{handle(run_id)} changed too much to list: tracer show {run_id}")
                    after = None
                    break
                for record in sorted(orjson.loads(event["data"]).get("changed", ()), key=_moment):
                    _print_change(run_id, record, seen)
                if seen.get(run_id) in ENDED:
                    return
        except (httpx2.TransportError, Refused) as error:
            is_away = isinstance(error, httpx2.TransportError) or error.status >= 500
            if not (is_away and is_connected):
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def _events(
    server: httpx2.AsyncClient, run_id: str, after: str
) -> AsyncIterator[dict[str, str]]:
    """Yield the fields of each event of a run, until the stream ends."""
    event: dict[str, str] = {}
    async with server.stream("GET", f"api/runs/{run_id}/events", params={"after": after}) as answer:
        await check(answer)
        async for line in answer.aiter_lines():
            field, _, value = line.partition(":")
            event[field] = value.strip()
            if field == "data":
                yield event
                event = {}


def _moment(record: dict[str, Any]) -> str:
    """Return when a record ended; if it is open, when it started."""
    at = record["finishedAt"] if record["status"] in ENDED else record["startedAt"]
    return at or ""


def _print_change(run_id: str, record: dict[str, Any], seen: dict[str, str]) -> None:
    """Print a record if its status is another one than before."""
    record_id, status = record[IDS[record["kind"]]], record["status"]
    if seen.get(record_id) == status or status in ("unknown", "pending"):
        return
    seen[record_id] = status
    error = record.get("error") or {}
    names = ("name", "agentName", "model", "requestedModel")
    subject = next(filter(None, map(record.get, names)), None)
    show(
        joined(
            _moment(record)[11:19],
            handle(run_id),
            {"thinkAct": "round", "toolCall": "call"}.get(record["kind"], record["kind"]),
            handle(record_id),
            name(subject) if subject else "",
            status.upper() if status in ("failed", "abandoned") else status,
            duration(record["durationMs"]),
            quoted(": ".join(filter(None, (error.get("type"), error.get("message")))) or None),
        )
    )


# --- MCP over stdio.


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
