"""The records of the demonstration run of the health application."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from api.main import server_parts
from health.demo import LIVE_REQUEST, REQUEST, TOKEN_ID, scripted_model
from tests.databases import fresh_database
from tests.health.serving import demonstrated, health, served
from tracer.context import identity
from tracer.records import Status
from tracer.runtime import RunLauncher
from tracer.runtime.launcher import RunOutcome
from tracer.settings import read_settings


async def play(database_url: str, home: Path) -> RunOutcome:
    """Record a demonstration run, strictly by its script."""
    model = scripted_model()
    async with served(database_url, home, health(model)) as made:
        outcome = await demonstrated(made)
    model.check_used_up()
    assert outcome.status is Status.SUCCEEDED, outcome
    return outcome


@pytest.fixture(scope="module")
async def recorded(
    postgres_server_url: str, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """A database with one demonstration run, for all tests that only look at it."""
    with fresh_database(postgres_server_url, _template) as url:
        await play(url, tmp_path_factory.mktemp("recorded"))
        yield url


async def fetch(database_url: str, query: LiteralString) -> list[tuple[Any, ...]]:
    connection = await psycopg.AsyncConnection.connect(database_url)
    async with connection:
        return await (await connection.execute(query)).fetchall()


async def test_sub_plans_nest_three_levels_below_the_root_plan(recorded: str) -> None:
    found = await fetch(
        recorded,
        """
        SELECT plan.depth, parent.title, plan.title
        FROM plan_execution_record plan
        JOIN plan_execution_record parent
          ON (parent.project_id, parent.root_plan_id, parent.plan_id)
           = (plan.project_id, plan.root_plan_id, plan.parent_plan_id)
        """,
    )

    assert sorted(found) == [
        (1, REQUEST.splitlines()[0], "Weekly review"),
        (2, "Weekly review", "Medication check"),
        (2, "Weekly review", "Symptom check"),
        (3, "Medication check", "Interaction check of ibuprofen and ginkgo"),
        (3, "Medication check", "Interaction check of lisinopril and ginkgo"),
        (3, "Medication check", "Interaction check of lisinopril and ibuprofen"),
    ]


async def test_every_sub_plan_refers_to_the_call_that_opened_it(recorded: str) -> None:
    found = await fetch(
        recorded,
        """
        SELECT plan.title, call.name = plan.template, call.arguments::jsonb,
               step.plan_id = plan.parent_plan_id, call.result = plan.summary
        FROM plan_execution_record plan
        JOIN act_tool_info call USING (project_id, root_plan_id, tool_call_id)
        JOIN agent_execution_record step
          ON (step.project_id, step.root_plan_id, step.step_id)
           = (call.project_id, call.root_plan_id, call.step_id)
        """,
    )

    of_pairs = [
        (f"Interaction check of {one} and {two}", True, {"first": one, "second": two})
        for one, two in [
            ("ibuprofen", "ginkgo"),
            ("lisinopril", "ginkgo"),
            ("lisinopril", "ibuprofen"),
        ]
    ]
    assert sorted(found, key=str) == [
        *((*each, True, True) for each in of_pairs),
        ("Medication check", True, {}, True, True),
        ("Symptom check", True, {}, True, True),
        ("Weekly review", True, {}, True, True),
    ]


async def test_two_calls_with_one_provider_id_open_two_sub_plans(recorded: str) -> None:
    [round_] = await fetch(
        recorded,
        """
        SELECT array_agg(plan.template ORDER BY call.position),
               array_agg(call.provider_call_id ORDER BY call.position)
        FROM plan_execution_record plan
        JOIN act_tool_info call USING (project_id, root_plan_id, tool_call_id)
        WHERE call.think_act_id IS NOT NULL
        GROUP BY call.think_act_id HAVING count(*) > 1
        """,
    )

    assert round_ == (["medication_check", "symptom_check"], ["call_0", "call_0"])


async def test_each_item_of_a_batch_tool_opens_a_sub_plan(recorded: str) -> None:
    found = await fetch(
        recorded,
        """
        SELECT batch.name, batch.tool_type, item.position, item.name, count(plan.plan_id)
        FROM act_tool_info item
        JOIN act_tool_info batch
          ON (batch.project_id, batch.root_plan_id, batch.tool_call_id)
           = (item.project_id, item.root_plan_id, item.parent_tool_call_id)
        LEFT JOIN plan_execution_record plan
          ON (plan.project_id, plan.root_plan_id, plan.tool_call_id)
           = (item.project_id, item.root_plan_id, item.tool_call_id)
        GROUP BY batch.name, batch.tool_type, item.position, item.name
        ORDER BY item.position
        """,
    )

    assert found == [
        ("interaction_checks", "BATCH", position, "interaction_check", 1) for position in range(3)
    ]


async def test_model_corrects_a_rejected_reading_in_the_next_round(recorded: str) -> None:
    calls = await fetch(
        recorded,
        """
        SELECT round.position, call.position, call.status, call.reason, call.provider_call_id,
               call.arguments::jsonb->'systolic', call.error_message
        FROM act_tool_info call JOIN think_act_record round USING (project_id, root_plan_id,
            think_act_id)
        WHERE call.name = 'record_blood_pressure' ORDER BY 1, 2
        """,
    )
    readings = await fetch(
        recorded, "SELECT systolic, diastolic FROM health.blood_pressure ORDER BY 1"
    )

    swapped = "The systolic value (88) has to be above the diastolic one (146): "
    swapped += "check whether the two were swapped."
    assert calls == [
        (0, 0, "succeeded", None, "call_0", 152, None),
        (0, 1, "failed", "tool_error", "call_0", 88, swapped),
        (1, 0, "succeeded", None, "call_0", 146, None),
    ]
    assert readings == [(146, 88), (152, 95)]


async def test_provider_call_ids_are_stored_unchanged(recorded: str) -> None:
    [(ids,)] = await fetch(
        recorded,
        """
        SELECT array_agg(provider_call_id ORDER BY position) FROM act_tool_info
        WHERE think_act_id = (
            SELECT think_act_id FROM act_tool_info WHERE name = 'record_symptom')
        """,
    )

    assert ids == ["call_0", "call_0", "call_0", "", "", None, None]


async def test_every_record_of_the_demo_run_has_ended(recorded: str) -> None:
    found = await fetch(
        recorded,
        """
        SELECT status::text, count(*) FROM (
            SELECT status, finished_at FROM run
            UNION ALL SELECT status, finished_at FROM plan_execution_record
            UNION ALL SELECT status, finished_at FROM agent_execution_record
            UNION ALL SELECT status, finished_at FROM think_act_record
            UNION ALL SELECT status, finished_at FROM act_tool_info
        ) record
        GROUP BY 1, finished_at IS NULL ORDER BY 1
        """,
    )

    # 1 run, 7 plans, 10 steps, 22 rounds, 31 calls; one call was refused.
    assert found == [("failed", 1), ("succeeded", 70)]


async def test_tokens_of_the_run_equal_the_sum_of_its_rounds(recorded: str) -> None:
    [totals] = await fetch(
        recorded, "SELECT input_tokens, output_tokens, tool_calls, failed_calls FROM run"
    )
    [of_rounds] = await fetch(
        recorded, "SELECT sum(input_tokens), sum(output_tokens) FROM think_act_record"
    )

    assert totals == (19_405, 1_686, 31, 1)
    assert of_rounds == totals[:2]


async def test_cost_of_the_run_is_known(recorded: str) -> None:
    found = await fetch(recorded, "SELECT cost_usd, unpriced_calls FROM run")

    # 19,405 tokens at $0.25 and 1,686 tokens at $2 per million
    assert found == [(Decimal("0.00822325"), 0)]


async def test_notes_in_chinese_are_stored_unchanged(recorded: str) -> None:
    found = await fetch(
        recorded,
        """
        SELECT notes, call.arguments::jsonb->>'notes'
        FROM health.symptom, act_tool_info call WHERE call.name = 'record_symptom'
        """,
    )

    assert found == [("起床时头晕", "起床时头晕")]


async def test_current_time_tool_returns_the_time_of_the_mcp_server(recorded: str) -> None:
    [(tool_type, result)] = await fetch(
        recorded, "SELECT tool_type, result FROM act_tool_info WHERE name = 'get_current_time'"
    )

    assert tool_type == "MCP"
    assert json.loads(result)["timezone"] == "UTC"


async def test_previous_runs_tool_returns_no_titles(
    recorded: str,
) -> None:
    [(tool_type, result)] = await fetch(
        recorded, "SELECT tool_type, result FROM act_tool_info WHERE name = 'previous_runs'"
    )

    [this_run] = json.loads(result)
    assert tool_type == "REST"
    assert set(this_run) == {"startedAt", "status", "toolCalls", "failures"}
    assert this_run["status"] == "running"


async def test_each_stored_entry_changes_the_session_state(recorded: str) -> None:
    found = await fetch(
        recorded,
        "SELECT name, status::text, state_changes IS NOT NULL, count(*) FROM act_tool_info"
        " WHERE name LIKE 'record%' GROUP BY 1, 2, 3 ORDER BY 1, 2",
    )

    assert found == [
        ("record_blood_pressure", "failed", False, 1),
        ("record_blood_pressure", "succeeded", True, 2),
        ("record_health_event", "succeeded", True, 1),
        ("record_medication", "succeeded", True, 3),
        ("record_symptom", "succeeded", True, 1),
    ]


async def test_diary_entries_have_the_callers_user_id_and_records_do_not(recorded: str) -> None:
    owners = await fetch(
        recorded,
        """
        SELECT DISTINCT user_id FROM (
            SELECT user_id FROM health.blood_pressure UNION SELECT user_id FROM health.health_event
            UNION SELECT user_id FROM health.medication UNION SELECT user_id FROM health.symptom
        ) entry
        """,
    )
    calls = await fetch(recorded, "SELECT row_to_json(call)::text FROM act_tool_info call")
    rounds = await fetch(recorded, "SELECT row_to_json(round)::text FROM think_act_record round")
    runs = await fetch(recorded, "SELECT row_to_json(run)::text FROM run")

    assert owners == [(TOKEN_ID,)]
    assert TOKEN_ID not in str(calls)
    assert TOKEN_ID not in str(rounds)
    assert TOKEN_ID not in str(runs)


@pytest.mark.thorough
async def test_two_demo_runs_on_one_database_are_separate(
    database_url: str, tmp_path: Path
) -> None:
    await play(database_url, tmp_path)
    await play(database_url, tmp_path)

    found = await fetch(database_url, "SELECT status::text, tool_calls FROM run")
    query = "SELECT json_array_length(result::json) FROM act_tool_info WHERE name = 'previous_runs'"
    assert found == [("succeeded", 31)] * 2
    assert sorted(await fetch(database_url, query)) == [(1,), (2,)]


@pytest.mark.thorough
async def test_session_state_is_kept_for_the_next_run_of_the_session(
    database_url: str, tmp_path: Path
) -> None:
    async with served(database_url, tmp_path, health()) as made:
        for _ in range(2):
            with identity(token_id=TOKEN_ID):
                await (await made.opened_launcher()).run(REQUEST, session_id="s-1")

    [(state,)] = await fetch(database_url, "SELECT state FROM session_state")
    counts = await fetch(
        database_url,
        """
        SELECT substring(round.messages FROM 'this conversation ([0-9]+) entries')::int
        FROM think_act_record round
        JOIN agent_execution_record step USING (project_id, root_plan_id, step_id)
        WHERE step.agent_name = 'coordinator' AND round.position = 0
        ORDER BY round.started_at
        """,
    )
    assert state == {"entries_recorded": 14}
    [(first,), (second,)] = counts
    assert second - first == 7


@pytest.mark.thorough
async def test_demo_without_a_model_can_run_three_times_concurrently(
    database_url: str, tmp_path: Path
) -> None:
    async with served(database_url, tmp_path, health()) as made:
        outcomes = await asyncio.gather(*(demonstrated(made) for _ in range(3)))

    assert [each.status for each in outcomes] == [Status.SUCCEEDED] * 3


@pytest.mark.thorough
async def test_run_to_watch_reviews_what_the_first_run_recorded(
    database_url: str, tmp_path: Path
) -> None:
    async with served(database_url, tmp_path, health()) as made:
        await demonstrated(made)
        with identity(token_id=TOKEN_ID):
            outcome = await (await made.opened_launcher()).run(LIVE_REQUEST)

    readings = await fetch(
        database_url,
        """
        SELECT root_plan_id, json_array_length(result::json) FROM act_tool_info
        WHERE name = 'query_blood_pressure' AND status = 'succeeded'
        """,
    )
    assert outcome.status is Status.SUCCEEDED
    assert {count for root, count in readings if root == outcome.root_plan_id} == {2}


@dataclass(frozen=True)
class Alone:
    """The application without a server and without a caller."""

    launcher: RunLauncher
    database_url: str


@pytest.fixture(scope="module")
async def alone(
    postgres_server_url: str, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Alone]:
    """Return the application over a database of its own."""
    home = tmp_path_factory.mktemp("alone")
    with fresh_database(postgres_server_url, _template) as url:
        async with server_parts(read_settings(home=home), url, health()) as made:
            yield Alone(await made.opened_launcher(), url)


async def test_tools_without_a_server_or_caller_fail_with_a_reason(
    alone: Alone,
) -> None:
    outcome = await alone.launcher.run(REQUEST)

    found = await fetch(
        alone.database_url,
        """
        SELECT DISTINCT reason, error_message FROM act_tool_info
        WHERE status = 'failed' ORDER BY 1
        """,
    )
    [(entries,)] = await fetch(alone.database_url, "SELECT count(*) FROM health.blood_pressure")
    assert outcome.status is Status.SUCCEEDED
    assert [reason for reason, _ in found] == ["missing_identity", "tool_error"]
    assert "with identity(…)" in found[0][1]
    assert "The agents do not run in a server" in found[1][1]
    assert entries == 0


async def test_unscripted_request_without_a_model_fails_and_names_the_setting(alone: Alone) -> None:
    outcome = await alone.launcher.run("What is the weather like?")

    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert "Set TRACER_MODEL" in outcome.error.message
