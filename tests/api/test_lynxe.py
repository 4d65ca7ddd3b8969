"""Runs in Lynxe's shape: every field there, every sub-plan where a front end looks for it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import jsonschema_rs

from api.lynxe_schemas import LynxeAgentExecutionRecord, LynxePlanExecutionRecord
from tests.api.conftest import Api
from tests.otel.captured import spans_of
from tests.sample_runs import SampleRun, sample_run
from tracer.events import Event, PlanStarted, StepStarted, ThoughtStarted, ToolCallStarted
from tracer.ids import new_id

A_MILLISECOND = 1_000_000
MESSAGES = '[{"role":"user","content":"Review"}]'


def number(record_id: UUID) -> int:
    return int(sha256(record_id.bytes).hexdigest()[:14], 16) >> 3


def moment(steps: int) -> list[int]:
    """Return the time of a sample run's event: each comes ten milliseconds after the one before."""
    nanoseconds = steps * 10 * A_MILLISECOND
    return [2026, 1, 1, 12, 0, *([0, nanoseconds] if nanoseconds else [])]


async def details(api: Api, plan_id: UUID) -> Any:
    return await api.read(f"/api/executor/details/{plan_id}")


async def agent_execution(api: Api, step_id: UUID) -> Any:
    return await api.read(f"/api/executor/agent-execution/{step_id}")


def expected_sub_plan(run: SampleRun, index: int, start: int) -> dict[str, Any]:
    plan = run.sub_plans[index]
    return {
        "id": number(plan),
        "currentPlanId": str(plan),
        "rootPlanId": str(run.root),
        "parentPlanId": str(run.root),
        "toolCallId": str(run.opening_calls[index]),
        "title": f"Check {index}",
        "userRequest": None,
        "startTime": moment(start),
        "endTime": moment(start + 1),
        "currentStepIndex": 0,
        "completed": True,
        "summary": "well",
        "agentExecutionSequence": [],
        "userInputWaitState": None,
        "modelName": None,
        "parentActToolCall": {
            "name": "check",
            "parameters": f'{{"number":{index}}}',
            "result": "well",
            "id": str(run.opening_calls[index]),
        },
        "structureResult": None,
    }


def expected_agent(run: SampleRun) -> dict[str, Any]:
    return {
        "id": number(run.step),
        "stepId": str(run.step),
        "conversationId": None,
        "agentName": "nurse",
        "agentDescription": None,
        "startTime": moment(1),
        "endTime": moment(11),
        "maxSteps": None,
        "currentStep": 1,
        "status": "FINISHED",
        "agentRequest": "Review",
        "result": "fine",
        "errorMessage": None,
        "modelName": None,
        "thinkActSteps": [
            {
                "id": number(run.think_act),
                "parentExecutionId": number(run.step),
                "thinkStartTime": moment(2),
                "thinkEndTime": None,
                "actStartTime": None,
                "actEndTime": None,
                "thinkInput": MESSAGES,
                "thinkOutput": "I check everything at once.",
                "actionNeeded": True,
                "actionDescription": None,
                "actionResult": None,
                "status": None,
                "errorMessage": None,
                "inputCharCount": 100,
                "outputCharCount": 20,
                "modelContextLimit": None,
                "toolName": None,
                "toolParameters": None,
                "actToolInfoList": [
                    {
                        "name": "measure",
                        "parameters": "{}",
                        "result": "the cuff is loose",
                        "id": str(run.failed_call),
                    },
                    *(
                        {
                            "name": "check",
                            "parameters": f'{{"number":{index}}}',
                            "result": "well",
                            "id": str(call),
                        }
                        for index, call in enumerate(run.opening_calls)
                    ),
                ],
            }
        ],
        "subPlanExecutionRecords": [expected_sub_plan(run, 0, 5), expected_sub_plan(run, 1, 8)],
        "latestMethodName": "check",
        "latestMethodArgs": '{"number":1}',
        "latestRoundNumber": 1,
        "completed": True,
        "running": False,
        "idle": False,
        "completedThinkActStepsCount": 0,
        "subPlanCount": 2,
    }


async def test_a_run_is_served_field_for_field_in_lynxes_shape(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=2))

    assert await details(api, run.root) == {
        "id": number(run.root),
        "currentPlanId": str(run.root),
        "rootPlanId": str(run.root),
        "parentPlanId": None,
        "toolCallId": None,
        "title": "Weekly review",
        "userRequest": "How was my week?",
        "startTime": moment(0),
        "endTime": moment(12),
        "currentStepIndex": 0,
        "completed": True,
        "summary": "All fine",
        "agentExecutionSequence": [expected_agent(run)],
        "userInputWaitState": None,
        "modelName": None,
        "parentActToolCall": None,
        "structureResult": "well",
    }


async def test_a_step_is_served_alone_with_all_below_it(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=2))

    assert await agent_execution(api, run.step) == expected_agent(run)


async def test_a_sub_plan_is_served_by_its_own_id_and_names_the_call_that_opened_it(
    api: Api,
) -> None:
    run = await api.record(sample_run(sub_plans=2))

    assert await details(api, run.sub_plans[1]) == expected_sub_plan(run, 1, 8)


async def test_what_still_runs_is_not_completed(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=1, finished=False))

    plan = await details(api, run.root)

    (agent,) = plan["agentExecutionSequence"]
    assert (plan["completed"], plan["endTime"], plan["structureResult"]) == (False, None, None)
    assert [agent["status"], agent["running"], agent["completed"]] == ["RUNNING", True, False]
    (failed, opening) = agent["thinkActSteps"][0]["actToolInfoList"]
    assert (failed["result"], opening["result"]) == ("the cuff is loose", None)
    assert agent["subPlanExecutionRecords"][0]["completed"] is True
    assert agent["subPlanExecutionRecords"][0]["parentActToolCall"]["result"] is None


async def test_the_current_step_is_the_running_one_else_the_first_that_waits(api: Api) -> None:
    run = sample_run()
    steps = tuple({"stepId": str(new_id()), "agentName": "a", "request": "r"} for _ in range(3))
    plan = run.events[0]
    assert isinstance(plan, PlanStarted)
    planned = PlanStarted.model_validate({**plan.model_dump(), "steps": steps})
    await api.record(replace(run, events=[planned]))

    waiting = await details(api, run.root)
    second = StepStarted(
        at=plan.at, root_plan_id=run.root, plan_id=run.root, step_id=UUID(steps[1]["stepId"])
    )
    await api.record(replace(run, events=[second]))
    running = await details(api, run.root)

    assert (waiting["currentStepIndex"], running["currentStepIndex"]) == (0, 1)
    statuses = [each["status"] for each in running["agentExecutionSequence"]]
    assert statuses == ["IDLE", "RUNNING", "IDLE"]


async def test_hand_offs_and_the_sub_plans_of_batch_items_stand_under_their_agent(
    api: Api,
) -> None:
    run = await api.record(sample_run(sub_plans=0))
    place: dict[str, Any] = {"root_plan_id": run.root, "plan_id": run.root, "step_id": run.step}
    item, alone = new_id(), new_id()
    at = run.events[0].at
    plans: dict[UUID, dict[str, Any]] = {
        new_id(): {"tool_call_id": item},
        new_id(): {"opened_by_step_id": run.step},
        new_id(): {"tool_call_id": alone},
    }
    more: list[Event] = [
        ToolCallStarted(
            at=at,
            **place,
            tool_call_id=item,
            parent_tool_call_id=run.failed_call,
            name="item",
            arguments="1",
        ),
        ToolCallStarted(at=at, **place, tool_call_id=alone, name="alone", arguments="2"),
        *(
            PlanStarted(
                at=at, root_plan_id=run.root, plan_id=plan, parent_plan_id=run.root, **opener
            )
            for plan, opener in plans.items()
        ),
    ]
    await api.record(replace(run, events=more))

    agent = await agent_execution(api, run.step)

    found = {
        UUID(each["currentPlanId"]): (each["parentActToolCall"] or {}).get("name")
        for each in agent["subPlanExecutionRecords"]
    }
    assert found == dict(zip(plans, ("item", None, "alone"), strict=True))
    calls = [[c["name"] for c in each["actToolInfoList"]] for each in agent["thinkActSteps"]]
    assert calls == [["measure", "item"], ["alone"]]
    assert [each["id"] for each in agent["thinkActSteps"]] == [number(run.think_act), None]
    assert (agent["subPlanCount"], agent["currentStep"], agent["latestMethodName"]) == (
        3,
        1,
        "alone",
    )


async def test_what_hangs_under_nothing_known_stands_in_an_agent_of_its_own(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=0))
    plan, call, step, think_act = (new_id() for _ in range(4))
    at = run.events[0].at
    lost: list[Event] = [
        PlanStarted(
            at=at, root_plan_id=run.root, plan_id=plan, parent_plan_id=run.root, tool_call_id=call
        ),
        ThoughtStarted(
            at=at,
            root_plan_id=run.root,
            plan_id=new_id(),
            step_id=step,
            think_act_id=think_act,
            position=0,
        ),
    ]
    await api.record(replace(run, events=lost))

    shown = await details(api, run.root)

    assert shown["currentStepIndex"] == 0
    *_, nowhere = shown["agentExecutionSequence"]
    assert nowhere["id"] is None
    assert str(plan) in str(nowhere["subPlanExecutionRecords"])
    assert str(call) in str(nowhere["thinkActSteps"])
    assert str(number(think_act)) in str(shown)


async def test_a_run_of_spans_is_served_alike(api: Api) -> None:
    spans = spans_of("pydantic-ai-default-single")
    await api.record_spans(spans)

    shown = await details(api, UUID(bytes=spans[0].trace_id))

    (agent,) = shown["agentExecutionSequence"]
    openers = [each["parentActToolCall"]["id"] for each in agent["subPlanExecutionRecords"]]
    calls = [c["id"] for each in agent["thinkActSteps"] for c in each["actToolInfoList"]]
    assert len(openers) == 2
    assert set(openers) <= set(calls)


async def test_sub_plans_may_lie_as_deep_as_they_like(api: Api) -> None:
    depth = 300
    run = sample_run(sub_plans=0)
    above, events = (run.root, run.step), list[Event]()
    for _ in range(depth):
        plan, step = new_id(), new_id()
        links: dict[str, Any] = {"parent_plan_id": above[0], "opened_by_step_id": above[1]}
        at = run.events[0].at
        events += [
            PlanStarted(at=at, root_plan_id=run.root, plan_id=plan, **links),
            StepStarted(at=at, root_plan_id=run.root, plan_id=plan, step_id=step),
        ]
        above = plan, step
    run.events += events
    await api.record(run)

    response = await api.get(f"/api/executor/details/{run.root}")

    assert response.status_code == 200
    assert response.text.count('"currentPlanId"') == depth + 1


async def test_unknown_id_is_not_found(api: Api) -> None:
    for path in ("details", "agent-execution"):
        for record_id in ("01a201eb-d35e-71e8-b334-782899446c2e", "plan-1763763712462"):
            response = await api.get(f"/api/executor/{path}/{record_id}")

            assert response.status_code == 404, (path, record_id)
            assert response.json()["code"] == "not_found", (path, record_id)


async def test_the_answers_are_as_the_openapi_document_says(api: Api) -> None:
    run = await api.record(sample_run())

    for model, answer in (
        (LynxePlanExecutionRecord, await details(api, run.root)),
        (LynxeAgentExecutionRecord, await agent_execution(api, run.step)),
    ):
        schema = model.model_json_schema(mode="serialization")
        jsonschema_rs.validator_for(schema).validate(answer)


async def test_a_number_is_one_that_javascript_holds() -> None:
    assert all(0 <= number(new_id()) < 2**53 for _ in range(1000))
