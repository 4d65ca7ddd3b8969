"""The runtime on a real Postgres: many calls at once, hostile results, and a killed process."""

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.reaping import expire_leases
from tests.runtime.runs import Bench, application, bench, script
from tracer.clock import utc_now
from tracer.records import DEFAULT_TERMS
from tracer.records.results import result_text
from tracer.runtime import PlanTemplate, StepTemplate, subplan_tool
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.postgres import Pool, ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter
from tracer.text import unescape
from tracer.tools import Tool, tool


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(database_url) as pool:
        yield pool


def on_postgres(pool: Pool, spool: Path, model: ScriptedModel, tools: Any, **limits: Any) -> Any:
    return bench(
        application(model, tools, **limits),
        postgres_writer(ProjectPool(pool)),
        PostgresReader(ProjectPool(pool)),
        spool,
    )


async def test_200_parallel_calls_have_distinct_rows_results_and_sub_plans(
    pool: Pool, database_url: str, tmp_path: Path
) -> None:
    everybody = asyncio.Barrier(150)

    @tool
    async def echo(number: int) -> str:
        """Echoes, once all are there."""
        await everybody.wait()
        return f"echo {number}"

    review = subplan_tool(
        PlanTemplate(
            name="review",
            description="Reviews.",
            parameters={"number": int},
            steps=(StepTemplate("Review {number}."),),
        )
    )
    provider_ids = ["", "call_0", None]
    calls = [
        call("review" if n % 4 == 0 else "echo", {"number": n}, provider_ids[n % 3])
        for n in range(200)
    ]
    reviews = [script(f"Review {n}.", f"review {n}") for n in range(0, 200, 4)]
    model = ScriptedModel([script("All", calls, "done"), *reviews])

    async with on_postgres(pool, tmp_path, model, [echo, review], max_parallel=200) as on:
        outcome = await on.launcher.run("All", agent="worker")

    model.check_used_up()
    assert outcome.status == "succeeded"
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT c.position, c.provider_call_id, c.name, c.arguments::jsonb ->> 'number',"
            " c.result, c.status::text, p.summary, p.status::text"
            " FROM act_tool_info c"
            " LEFT JOIN plan_execution_record p USING (project_id, root_plan_id, tool_call_id)"
            " WHERE c.root_plan_id = %s ORDER BY c.position",
            [outcome.root_plan_id],
        ).fetchall()
        [[distinct]] = connection.execute(
            "SELECT count(DISTINCT tool_call_id) FROM act_tool_info"
        ).fetchall()
    assert distinct == 200
    assert rows == [
        (n, provider_ids[n % 3], name, str(n), f"{name} {n}", "succeeded", summary, ended)
        for n in range(200)
        for name, summary, ended in (
            [("review", f"review {n}", "succeeded")] if n % 4 == 0 else [("echo", None, None)]
        )
    ]


class Opaque:
    def __repr__(self) -> str:
        return "Opaque(\0)"


HOSTILE: dict[str, Any] = {
    "five_megabytes": "血压 x\n" * 625_000,
    "nul": "a\0b",
    "surrogates": "\ud800 and \udfff, not \U0001f600",
    "escapes": "␛0000 ␛ ␛d800",
    "not_a_number": math.nan,
    "nested_nan": {"values": [math.nan, math.inf, "\0"]},
    "objects": [Opaque(), object],
    "raw_bytes": b"\xff\0\xfe",
    "nested_surrogate": {"text": "\udc00"},
    "nothing": None,
    "empty": "",
}


def returning(name: str, value: Any) -> Tool:
    async def give() -> Any:
        return value

    return tool(name=name, description="Gives.")(give)


async def test_any_tool_result_is_stored_as_json_or_as_a_description(
    pool: Pool, tmp_path: Path
) -> None:
    tools = [returning(name, value) for name, value in HOSTILE.items()]
    model = ScriptedModel([script("Go", [call(each.name) for each in tools], "done")])

    async with on_postgres(pool, tmp_path, model, tools) as on:
        outcome = await on.launcher.run("Go", agent="worker")
        rows = await on.rows(outcome.root_plan_id)
        stored = {}
        for row in rows.tool_calls:
            whole = await on.reader.read_tool_call(UUID(row["toolCallId"]))
            stored[row["name"]] = unescape(whole.call.result or "")

    assert outcome.summary == "done"
    assert {each["status"] for each in rows.tool_calls} == {"succeeded"}
    assert stored == {name: result_text(value) for name, value in HOSTILE.items()}
    assert stored["five_megabytes"] == HOSTILE["five_megabytes"]
    [second] = [each for each in rows.think_acts if each["position"] == 1]
    await check_messages_are_bounded(on, second)


async def check_messages_are_bounded(on: Bench, think_act: Any) -> None:
    """Check that a huge result is not sent to the model, nor kept with each round after it."""
    contents = [each["content"] or "" for each in await on.messages(think_act)]
    [huge] = [each for each in contents if "left out" in each]
    assert len(huge) < 70_000


async def test_any_tool_failure_is_stored_and_the_agent_continues(
    pool: Pool, tmp_path: Path
) -> None:
    @tool
    async def raises() -> None:
        raise ValueError("bad \0 \ud800 text")

    @tool(timeout=0.01)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @tool
    def exits() -> None:
        sys.exit(3)

    tools = [raises, hangs, gives_up, exits]
    calls = [*(call(each.name) for each in tools), call("raises", "\0\ud800", "\0")]
    model = ScriptedModel([script("Go", calls, "done")])

    async with on_postgres(pool, tmp_path, model, tools) as on:
        outcome = await on.launcher.run("Go", agent="worker")
        rows = await on.rows(outcome.root_plan_id)

    assert outcome.status == "succeeded"
    assert [(each["status"], each["reason"]) for each in rows.tool_calls] == [
        ("failed", "tool_error"),
        ("failed", "timed_out"),
        ("cancelled", None),
        ("failed", "tool_error"),
        ("failed", "invalid_arguments"),
    ]
    assert rows.tool_calls[0]["error"]["message"] == "bad ␛0000 ␛d800 text"
    assert rows.tool_calls[3]["error"]["type"] == "SystemExit"
    assert (rows.tool_calls[4]["arguments"], rows.tool_calls[4]["providerCallId"]) == (
        "␛0000␛d800",
        "␛0000",
    )


async def test_call_of_a_killed_process_is_stored_and_becomes_abandoned(
    pool: Pool, database_url: str, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.runtime.hanging_process",
        database_url,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        tool_call_id = UUID((await process.stdout.readline()).decode().strip())
    process.kill()
    await process.wait()

    reader = PostgresReader(ProjectPool(pool))
    found = await reader.read_tool_call(tool_call_id)

    assert (found.call.status, found.call.arguments) == ("running", '{"why":"no reason"}')
    assert [each.status for each in found.lineage] == ["running"] * 2 + ["succeeded", "running"]
    assert await statuses_of_runs(reader) == ["running"]

    await expire_leases(pool, utc_now() + 2 * DEFAULT_TERMS.lease)

    assert await statuses_of_runs(reader) == ["abandoned"]
    found = await reader.read_tool_call(tool_call_id)
    assert found.call.shown_status == "abandoned"


async def statuses_of_runs(reader: PostgresReader) -> list[str]:
    return [each.shown_status for each in (await reader.list_runs(RunFilter(), 10, None)).items]
