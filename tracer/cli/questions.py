"""The commands that ask the server about runs, `tracer tail` and `tracer mcp`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any

import httpx2
import orjson
import typer
from pydantic.alias_generators import to_snake
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.text import Text

from tracer.cli.http import check, run_id_of, server_of
from tracer.cli.terminal import AsJson, console, counted, run_command
from tracer.errors import NOTHING_FOUND
from tracer.questions import QUESTIONS, Asked, duration, handle, joined, name, quoted
from tracer.questions.rows import SAME
from tracer.reading import Refused
from tracer.settings import Settings


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


STYLES = {
    r"\b(FAILED|ABANDONED|error)\b": "red",
    r"\br[0-9a-f]{10}\b": "cyan",
    r"RUNNING": "yellow",
}


def show(text: str) -> None:
    """Print an answer: in colour on a terminal, without escapes in a pipe."""
    if not sys.stdout.isatty():
        typer.echo(text.rstrip("\n"))
        return
    shown = Text(text.rstrip("\n"))
    for pattern, style in STYLES.items():
        shown.highlight_regex(pattern, style)
    Console(highlight=False, soft_wrap=True).print(shown)


_ARGUMENTS = {
    "q": "WORDS",
    "run": "RUN",
    "id": "ID",
    "pointer": "POINTER",
    "a": "RUN",
    "b": "OTHER",
}
"""The fields of questions that a command takes without the name of an option."""


def question_command(question: str) -> Callable[..., None]:
    """Return the command that asks a question. Its parameters are those of the question."""
    kind = QUESTIONS[question]

    def command(*, as_json: bool, **asked: Any) -> None:
        async def run(settings: Settings) -> None:
            given = {kind.model_fields[name].alias or name: each for name, each in asked.items()}
            found = await ask(settings, question, given, as_json=as_json)
            show(found)
            if question == "diff" and (
                orjson.loads(found)["differs"] if as_json else SAME not in found.splitlines()
            ):
                raise typer.Exit(NOTHING_FOUND)

        run_command(run)

    fields = sorted(kind.model_fields.items(), key=lambda each: each[0] == "budget")  # last
    parameters = [_parameter(kind, name, field) for name, field in fields]
    parameters.append(
        Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
    )
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameter(kind: type[Asked], name: str, field: FieldInfo) -> Parameter:
    """Return the parameter of a command for a field of a question."""
    shown: Any
    default = kind.command_budget if name == "budget" else field.default
    if name in _ARGUMENTS:
        value: Any = str if field.is_required() else str | None
        shown = typer.Argument(metavar=_ARGUMENTS[name], help=field.description)
    else:
        value = field.annotation
        option = to_snake(field.alias or name).replace("_", "-")
        shown = typer.Option(f"--{option}", help=field.description)
    if field.is_required():
        default = Parameter.empty
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[value, shown]
    )


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
            if chosen:
                console.print(f"Following {counted(len(chosen), 'run')}. Ctrl-C ends it.")
            else:
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
            path, given = f"api/runs/{run_id}/events", {"after": after}
            async with server.sse(path, params=given, max_event_size=None) as events:
                await check(events.response)
                async for event in events:
                    if event.event == "deleted":
                        show(f"{handle(run_id)} was deleted")
                        return
                    after = event.id or after
                    if event.event == "reset":
                        show(f"{handle(run_id)} changed too much to list: tracer show {run_id}")
                        after = None
                        break
                    for record in sorted(
                        orjson.loads(event.data or b"{}").get("changed", ()), key=_moment
                    ):
                        _print_change(run_id, record, seen)
                    if seen.get(run_id) in ENDED:
                        return
        except (httpx2.TransportError, Refused) as error:
            is_away = isinstance(error, httpx2.TransportError) or error.status >= 500
            if not (is_away and is_connected):
                raise
        await asyncio.sleep(RETRY_SECONDS)


def _moment(record: dict[str, Any]) -> str:
    """Return when a record ended; if it is open, when it started."""
    return record.get("finishedAt" if record["status"] in ENDED else "startedAt") or ""


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
            duration(record.get("durationMs")),
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
