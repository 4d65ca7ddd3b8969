import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from health.agents import health_application
from health.demo import REQUEST, scripted_model
from health.diary import Diary
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import Spool
from tracer.runtime.chat_model import ChatModel
from tracer.runtime.launcher import RunLauncher, RunOutcome
from tracer.status import Status
from tracer.storage.engine import open_pool
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter


@asynccontextmanager
async def launcher(
    database_url: str, home: Path, model: ChatModel | None = None
) -> AsyncIterator[RunLauncher]:
    """Give what runs the application on a database, with its own model unless another is given."""
    application = health_application(Diary())
    if model is not None:
        application = replace(application, model=model)
    assert application.resources is not None
    async with (
        open_pool(database_url) as pool,
        Recorder(PostgresWriter(pool), Spool(home / "spool.sqlite3")) as recorder,
        application.resources(database_url),
        RunLauncher(application, recorder, PostgresReader(pool)) as runs,
    ):
        yield runs


async def play(database_url: str, home: Path) -> RunOutcome:
    """Record a demonstration run, strictly by its script."""
    model = scripted_model()
    async with launcher(database_url, home, model) as runs:
        outcome = await runs.run(REQUEST)
    model.check_used_up()
    assert outcome.status is Status.SUCCEEDED, outcome
    return outcome


@pytest.fixture
async def recorded(database_url: str, tmp_path: Path) -> str:
    """A database with one demonstration run."""
    await play(database_url, tmp_path)
    return database_url


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
        (1, REQUEST.splitlines()[0], "Weekly review of p-1"),
        (2, "Weekly review of p-1", "Medication check of p-1"),
        (2, "Weekly review of p-1", "Symptom check of p-1"),
        (3, "Medication check of p-1", "Interaction check of ibuprofen and ginkgo"),
        (3, "Medication check of p-1", "Interaction check of lisinopril and ginkgo"),
        (3, "Medication check of p-1", "Interaction check of lisinopril and ibuprofen"),
    ]


async def test_every_sub_plan_hangs_under_the_call_that_opened_it(recorded: str) -> None:
    found = await fetch(
        recorded,
        """
        SELECT plan.title, call.name = plan.template, call.arguments_json,
               step.plan_id = plan.parent_plan_id, call.result = plan.summary
        FROM plan_execution_record plan
        JOIN act_tool_info call USING (project_id, root_plan_id, tool_call_id)
        JOIN agent_execution_record step
          ON (step.project_id, step.root_plan_id, step.step_id)
           = (call.project_id, call.root_plan_id, call.step_id)
        """,
    )

    patient = {"patient_id": "p-1"}
    of_pairs = [
        (f"Interaction check of {one} and {two}", True, patient | {"first": one, "second": two})
        for one, two in [
            ("ibuprofen", "ginkgo"),
            ("lisinopril", "ginkgo"),
            ("lisinopril", "ibuprofen"),
        ]
    ]
    assert sorted(found, key=str) == [
        *((*each, True, True) for each in of_pairs),
        ("Medication check of p-1", True, patient, True, True),
        ("Symptom check of p-1", True, patient, True, True),
        ("Weekly review of p-1", True, patient, True, True),
    ]


async def test_one_round_opens_two_sub_plans_with_one_provider_id(recorded: str) -> None:
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


async def test_the_items_of_the_batch_open_a_sub_plan_each(recorded: str) -> None:
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


async def test_the_refused_reading_is_corrected_in_the_next_round(recorded: str) -> None:
    calls = await fetch(
        recorded,
        """
        SELECT round.position, call.position, call.status, call.reason, call.provider_call_id,
               call.arguments_json->'systolic', call.error_message
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


async def test_provider_ids_are_kept_as_they_came(recorded: str) -> None:
    [(ids,)] = await fetch(
        recorded,
        """
        SELECT array_agg(provider_call_id ORDER BY position) FROM act_tool_info
        WHERE think_act_id = (
            SELECT think_act_id FROM act_tool_info WHERE name = 'record_symptom')
        """,
    )

    assert ids == ["call_0", "call_0", "", "", None, None]


async def test_nothing_is_left_open(recorded: str) -> None:
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

    # 1 run, 7 plans, 10 steps, 21 rounds, 27 calls; one call was refused.
    assert found == [("failed", 1), ("succeeded", 65)]


async def test_tokens_add_up(recorded: str) -> None:
    [totals] = await fetch(
        recorded, "SELECT input_tokens, output_tokens, tool_calls, failures FROM run"
    )
    [of_rounds] = await fetch(
        recorded, "SELECT sum(input_tokens), sum(output_tokens) FROM think_act_record"
    )

    assert totals == (18_127, 1_656, 27, 1)
    assert of_rounds == totals[:2]


async def test_the_patients_own_words_are_kept(recorded: str) -> None:
    found = await fetch(
        recorded,
        """
        SELECT notes, call.arguments_json->>'notes'
        FROM health.symptom, act_tool_info call WHERE call.name = 'record_symptom'
        """,
    )

    assert found == [("起床时头晕", "起床时头晕")]


async def test_a_second_run_on_the_same_database_is_a_run_of_its_own(
    recorded: str, tmp_path: Path
) -> None:
    await play(recorded, tmp_path)

    found = await fetch(recorded, "SELECT status::text, tool_calls FROM run")
    assert found == [("succeeded", 27)] * 2


async def test_without_a_model_the_demonstration_can_be_run_again_and_again(
    database_url: str, tmp_path: Path
) -> None:
    async with launcher(database_url, tmp_path) as runs:
        outcomes = await asyncio.gather(*(runs.run(REQUEST) for _ in range(3)))

    assert [each.status for each in outcomes] == [Status.SUCCEEDED] * 3


async def test_without_a_model_another_request_fails_and_says_what_to_do(
    database_url: str, tmp_path: Path
) -> None:
    async with launcher(database_url, tmp_path) as runs:
        outcome = await runs.run("What is the weather like?")

    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert "Set TRACER_MODEL" in outcome.error.message
