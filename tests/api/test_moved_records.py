"""The id of a record that a later projection replaced gets 404 with a link to the run."""

from __future__ import annotations

from uuid import UUID

from tests.api.conftest import Api
from tests.otel.made_traces import TRACE_ID, agent, body_of, tool
from tracer.otel.projection.project import record_ids
from tracer.records import Kind, new_id

RUN = UUID(TRACE_ID)
JSON = {"Content-Type": "application/json"}


def id_of(kind: Kind, span: int) -> UUID:
    return UUID(bytes=record_ids(RUN.bytes, kind)(span.to_bytes(8)))


async def post(api: Api, *spans: dict[str, object]) -> None:
    answer = await api.client.post("/v1/traces", content=body_of(*spans), headers=JSON)
    assert answer.status_code == 200


async def test_id_of_a_replaced_record_gets_404_with_a_link_to_the_run(api: Api) -> None:
    await post(api, agent(1, "planner"), tool(2, "ask", parent=1, at=(0, 1)))
    old = f"/api/tool-calls/{id_of(Kind.TOOL_CALL, 2)}"
    assert (await api.client.get(old)).status_code == 200

    await post(api, agent(2, "helper", parent=1, at=(0, 2)))
    answer = await api.client.get(old)

    assert answer.status_code == 404
    assert answer.headers["Link"] == f'</api/runs/{RUN}>; rel="up"'
    assert f"/api/runs/{RUN}" in answer.json()["detail"]


async def test_unknown_record_ids_get_404(api: Api) -> None:
    await post(api, agent(1, "planner"))
    like_the_run = UUID(bytes=RUN.bytes[:6] + new_id().bytes[6:])
    assert like_the_run.version == 7

    for record_id in (new_id(), like_the_run, UUID(int=0)):
        for path in ("plans", "think-acts", "tool-calls"):
            answer = await api.client.get(f"/api/{path}/{record_id}")
            assert answer.status_code == 404
            assert "Link" not in answer.headers


async def test_record_ids_of_a_deleted_run_get_404(api: Api) -> None:
    await post(api, agent(1, "planner"), tool(2, "ask", parent=1))
    await api.client.delete(f"/api/runs/{RUN}")

    answer = await api.client.get(f"/api/tool-calls/{id_of(Kind.TOOL_CALL, 2)}")

    assert answer.status_code == 404
