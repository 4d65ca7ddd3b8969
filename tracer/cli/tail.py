"""The `tracer tail` command, which prints what happens in runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx2
import orjson
import typer

from tracer.cli.http import check, run_id_of, server_of
from tracer.cli.questions import show
from tracer.cli.terminal import run_command
from tracer.questions import duration, handle, joined, name, quoted
from tracer.settings import Settings

ENDED = ("succeeded", "failed", "cancelled", "abandoned")

IDS = {"plan": "planId", "step": "stepId", "thinkAct": "thinkActId", "toolCall": "toolCallId"}


def tail(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Handles or ids; all that run now if omitted."),
    ] = None,
) -> None:
    """Print starts, ends and failures in runs as they happen, until the runs have ended."""

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
    """Print the changes of a run until it has ended."""
    run = await server.get(f"api/runs/{run_id}")
    await check(run)
    seen: dict[str, str] = {}
    if (status := run.json()["status"]) in ENDED:
        show(f"{handle(run_id)} has ended: {status}. Read it with tracer show.")
        return
    after = {"after": run.json()["revision"]}
    async with server.stream("GET", f"api/runs/{run_id}/events", params=after) as answer:
        await check(answer)
        event = ""
        async for line in answer.aiter_lines():
            if line.startswith("event:"):
                event = line.removeprefix("event:").strip()
            elif line.startswith("data:"):
                data = orjson.loads(line.removeprefix("data:"))
                if event == "deleted":
                    show(f"{handle(run_id)} was deleted")
                    return
                if event == "reset":
                    show(f"{handle(run_id)} changed too much to list: tracer show {run_id}")
                for record in data.get("changed", ()):
                    _print(run_id, record, seen)
                if seen.get(run_id) in ENDED:
                    return
                event = ""


def _print(run_id: str, record: dict[str, Any], seen: dict[str, str]) -> None:
    """Print a record if its status is another one than before."""
    record_id, status = record[IDS[record["kind"]]], record["status"]
    if seen.get(record_id) == status or status in ("unknown", "pending"):
        return
    seen[record_id] = status
    error = record.get("error") or {}
    at = record["finishedAt"] if status in ENDED else record["startedAt"]
    show(
        joined(
            (at or "")[11:19],
            handle(run_id),
            {"thinkAct": "round", "toolCall": "call"}.get(record["kind"], record["kind"]),
            handle(record_id),
            name(record.get("name") or record.get("agentName") or record.get("model")),
            status.upper() if status in ("failed", "abandoned") else status,
            duration(record["durationMs"]),
            quoted(": ".join(filter(None, (error.get("type"), error.get("message")))))
            if error
            else "",
        )
    )
