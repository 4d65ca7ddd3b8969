"""A request becomes a plan: by the planner, for one agent, or from the caller."""

from typing import Any

import pytest

from tests.recordings import run_of, runs_of
from tests.runtime.conftest import OpenBench
from tests.runtime.runs import application, outline, script
from tracer.errors import BadRequest, ConfigurationError, RegistrationError
from tracer.runtime import Agent, Application
from tracer.runtime.launcher import RunOptions
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import RecordingInMemory

PLAN = '{"steps": [{"agent": "worker", "request": "Look"}, {"request": "Sum up"}]}'


def planning(*answers: str) -> Script:
    return Script([Turn(each) for each in answers], agent="planner")


async def test_planning_is_recorded_as_the_first_step_of_the_root_plan(
    open_bench: OpenBench,
) -> None:
    model = ScriptedModel([planning(PLAN), script("Look", "seen"), script("Sum up", "summed")])
    on = await open_bench(application(model))

    outcome = await on.launcher.run("How was my week?\nIn detail.")

    model.check_used_up()
    assert (outcome.status, outcome.summary) == ("succeeded", "summed")
    assert outline(await on.tree(outcome.root_plan_id)) == "\n".join(
        [
            "plan How was my week? [succeeded]",
            "  step planner How was my week?",
            "In detail. [succeeded]",
            f"    think-act {PLAN} [succeeded]",
            "  step worker Look [succeeded]",
            "    think-act seen [succeeded]",
            "  step worker Sum up [succeeded]",
            "    think-act summed [succeeded]",
        ]
    )
    rows = await on.rows(outcome.root_plan_id)
    assert rows.plans[0]["userRequest"] == "How was my week?\nIn detail."
    assert rows.plans[0]["agentName"] == "planner"
    contents = [each["content"] for each in await on.messages(rows.think_acts[2])]
    assert "Sum up" in contents[1]
    assert "- Look\n  → seen" in contents[2]


async def test_steps_of_a_plan_are_pending_until_they_start(
    open_bench: OpenBench,
) -> None:
    seen: list[Any] = []

    class Looking(ScriptedModel):
        async def complete(self, messages: Any, tools: Any) -> Any:
            rows = await on.rows(on.launcher.active_runs[0])
            seen.append([(each["agentName"], each["status"]) for each in rows.steps])
            return await super().complete(messages, tools)

    model = Looking([planning(PLAN), script("Look", "seen"), script("Sum up", "summed")])
    on = await open_bench(application(model))

    await on.launcher.run("Week?")

    assert seen == [
        [("planner", "running")],
        [("planner", "succeeded"), ("worker", "running"), ("worker", "pending")],
        [("planner", "succeeded"), ("worker", "succeeded"), ("worker", "running")],
    ]


@pytest.mark.parametrize(
    "answer",
    [
        f"Here you are:\n```json\n{PLAN}\n```\nEnjoy.",
        PLAN.replace('"agent": "worker"', '"agent": null, "why": "because"'),
    ],
)
async def test_plan_in_any_form_that_models_write_is_read(
    open_bench: OpenBench, answer: str
) -> None:
    model = ScriptedModel([planning(answer), script("Look", "seen"), script("Sum up", "summed")])
    on = await open_bench(application(model))

    assert (await on.launcher.run("Week?")).status == "succeeded"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Sure!", "not a valid plan"),
        ('{"steps": []}', "steps: List should have at least 1 item"),
        ('{"steps": [{"request": ""}]}', "steps.0.request"),
        ('{"steps": [{"agent": "nobody", "request": "x"}]}', "no agent 'nobody'"),
    ],
)
async def test_planner_is_called_again_with_the_errors_of_its_invalid_plan(
    open_bench: OpenBench, answer: str, said: str
) -> None:
    good = '{"steps": [{"request": "Look"}]}'
    model = ScriptedModel([planning(answer, good), script("Look", "seen")])
    on = await open_bench(application(model))

    outcome = await on.launcher.run("Week?")

    assert outcome.status == "succeeded"
    rows = await on.rows(outcome.root_plan_id)
    [second] = [each for each in rows.think_acts if each["position"] == 1]
    assert said in (await on.messages(second))[-1]["content"]


async def test_run_fails_if_the_planner_returns_no_valid_plan(open_bench: OpenBench) -> None:
    model = ScriptedModel([planning("No.", "No!", "Never.")])
    on = await open_bench(application(model))

    outcome = await on.launcher.run("Week?")

    rows = await on.rows(outcome.root_plan_id)
    assert (outcome.status, outcome.reason) == ("failed", "step_failed")
    assert outcome.error is not None
    assert "not a valid plan" in outcome.error.message
    [step] = rows.steps
    assert (step["status"], step["reason"]) == ("failed", "model_error")
    assert step["error"]["type"] == "PlanningError"
    assert len(rows.think_acts) == 3


async def test_planner_that_calls_a_tool_gets_its_result(open_bench: OpenBench) -> None:
    turns = [Turn(calls=[call("search")]), Turn('{"steps": [{"request": "Look"}]}')]
    model = ScriptedModel([Script(turns, agent="planner"), script("Look", "seen")])
    on = await open_bench(application(model))

    outcome = await on.launcher.run("Week?")

    assert outcome.status == "succeeded"
    [row] = (await on.rows(outcome.root_plan_id)).tool_calls
    assert (row["name"], row["reason"]) == ("search", "unknown_tool")


GIVEN: RunOptions = {"plan": ("Given", [(None, "Look"), ("worker", "Sum up"), (None, "Rest")])}


async def test_caller_supplied_plan_runs_without_the_planner(open_bench: OpenBench) -> None:
    model = ScriptedModel([script("Look", "seen"), script("Sum up", "ok"), script("Rest", "z")])
    on = await open_bench(application(model))

    outcome = await on.launcher.run("Week?", **GIVEN)

    assert outcome.summary == "z"
    [plan] = (await on.rows(outcome.root_plan_id)).plans
    assert (plan["title"], plan["userRequest"], plan["agentName"]) == ("Given", "Week?", "worker")


async def test_failed_step_stops_its_plan(
    open_bench: OpenBench,
) -> None:
    model = ScriptedModel([script("Look", "seen"), script("Sum up", Turn(error=ValueError("no")))])
    on = await open_bench(application(model))

    outcome = await on.launcher.run("Week?", **GIVEN)

    assert (outcome.status, outcome.reason) == ("failed", "step_failed")
    assert outcome.error is not None
    assert outcome.error.message == "Step 1 (worker) failed: no"
    rows = await on.rows(outcome.root_plan_id)
    assert [(each["status"], each["reason"]) for each in rows.steps] == [
        ("succeeded", None),
        ("failed", "model_error"),
        ("cancelled", "not_reached"),
    ]
    assert [each["request"] for each in rows.steps] == ["Look", "Sum up", "Rest"]


async def test_run_record_has_session_subject_tags_and_traceparent(
    open_bench: OpenBench, store: RecordingInMemory
) -> None:
    on = await open_bench(application(ScriptedModel([script("Week", "fine")])))

    outcome = await on.launcher.run(
        "Week?", agent="worker", session_id="s", subject="p-1", tags=["b", "a"], traceparent="00-x"
    )

    run = run_of(store, outcome.root_plan_id)
    assert (run.session_id, run.subject, run.tags) == ("s", "p-1", ["a", "b"])
    assert (run.traceparent, run.agent_name, run.title) == ("00-x", "worker", "Week?")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agent": "nobody"}, "no agent 'nobody'. Choose one of: worker"),
        ({"plan": ("t", [("nobody", "x")])}, "no agent 'nobody'"),
        ({"plan": ("t", [])}, "The plan has no steps"),
    ],
)
async def test_invalid_request_is_rejected_before_recording(
    open_bench: OpenBench, store: RecordingInMemory, options: Any, said: str
) -> None:
    on = await open_bench(application(ScriptedModel([])))

    for begin in (on.launcher.run, on.launcher.start):
        with pytest.raises(BadRequest, match=said):
            await begin("Week?", **options)

    assert runs_of(store) == []


@pytest.mark.parametrize("request_text", ["?", "x" * 100_000, "a\0b\ud800", "{0} {x} %s"])
async def test_any_text_is_accepted_as_a_request(open_bench: OpenBench, request_text: str) -> None:
    on = await open_bench(application(ScriptedModel([script("", "fine")])))

    outcome = await on.launcher.run(request_text, agent="worker")

    assert outcome.status == "succeeded"


def test_two_agents_with_one_name_are_rejected() -> None:
    model = ScriptedModel([])
    worker = Agent("worker", "Work.")

    with pytest.raises(ConfigurationError, match="no agents"):
        Application(name="a", agents=(), model=model)
    with pytest.raises(ConfigurationError, match="two agents"):
        Application(name="a", agents=(worker, worker), model=model)
    with pytest.raises(BadRequest, match="no agent 'x'"):
        Application(name="a", agents=(worker,), model=model, default_agent="x")
    with pytest.raises(RegistrationError, match="needs a name"):
        Agent("", "x")
    with pytest.raises(RegistrationError, match="max_rounds"):
        Agent("x", "x", max_rounds=0)
