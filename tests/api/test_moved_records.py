"""The id of a record that a later projection replaced redirects to the new record."""

from __future__ import annotations

from uuid import UUID

from tests.api.conftest import Api
from tests.otel.made_traces import TRACE_ID, agent, body_of, tool
from tracer.otel.projection.project import record_ids
from tracer.records.ids import new_id
from tracer.records.record_classes import Kind

RUN = UUID(TRACE_ID)
JSON = {"Content-Type": "application/json"}


def id_of(kind: Kind, span: int) -> UUID:
    return UUID(bytes=record_ids(RUN.bytes, kind)(span.to_bytes(8)))


async def post(api: Api, *spans: dict[str, object]) -> None:
    answer = await api.client.post("/v1/traces", content=body_of(*spans), headers=JSON)
    assert answer.status_code == 200


async def test_tool_call_that_later_spans_turn_into_an_agent_redirects_to_its_plan(
    api: Api,
) -> None:
    await post(api, agent(1, "planner"), tool(2, "ask", parent=1, at=(0, 1)))
    old = f"/api/tool-calls/{id_of(Kind.TOOL_CALL, 2)}"
    assert (await api.client.get(old)).status_code == 200

    await post(api, agent(2, "helper", parent=1, at=(0, 2)))
    moved = await api.client.get(old, follow_redirects=False)

    assert moved.status_code == 307
    assert moved.headers["Location"] == f"/api/plans/{id_of(Kind.PLAN, 2)}"
    assert moved.json()["code"] == "moved"
    plan = await api.client.get(moved.headers["Location"])
    assert plan.json()["agentName"] == "helper"


async def test_id_of_a_span_that_has_not_arrived_redirects_to_the_run(api: Api) -> None:
    await post(api, agent(1, "planner"))

    moved = await api.client.get(f"/api/think-acts/{id_of(Kind.THINK_ACT, 99)}")

    assert moved.status_code == 307
    assert moved.headers["Location"] == f"/api/runs/{RUN}"


async def test_unknown_record_ids_get_404(api: Api) -> None:
    await post(api, agent(1, "planner"))
    like_the_run = UUID(bytes=RUN.bytes[:6] + new_id().bytes[6:])
    assert like_the_run.version == 7

    for record_id in (new_id(), like_the_run, UUID(int=0)):
        for path in ("plans", "think-acts", "tool-calls"):
            answer = await api.client.get(f"/api/{path}/{record_id}")
            assert answer.status_code == 404


async def test_record_ids_of_a_deleted_run_get_404(api: Api) -> None:
    await post(api, agent(1, "planner"), tool(2, "ask", parent=1))
    await api.client.delete(f"/api/runs/{RUN}")

    answer = await api.client.get(f"/api/tool-calls/{id_of(Kind.TOOL_CALL, 2)}")

    assert answer.status_code == 404
