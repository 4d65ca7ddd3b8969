"""Leases over HTTP: recorders send heartbeats, and clients read the leases of a run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.api.conftest import Api
from tests.sample_runs import sample_run
from tracer.records import new_id


async def test_heartbeat_response_contains_the_renewal_time(api: Api) -> None:
    recorder_id = str(new_id())
    response = await api.client.post(f"/api/recorders/{recorder_id}/lease")

    assert response.status_code == 200, response.text
    lease = response.json()
    assert lease["recorderId"] == recorder_id
    assert (lease["leaseSeconds"], lease["renewAfterSeconds"]) == (60.0, 20.0)
    seen_at, expires_at = (datetime.fromisoformat(lease[name]) for name in ("seenAt", "expiresAt"))
    assert expires_at - seen_at == timedelta(seconds=60)


@pytest.mark.parametrize("recorder_id", ["me", "01a2"])
async def test_renewing_the_lease_of_an_invalid_recorder_id_gets_422(
    api: Api, recorder_id: str
) -> None:
    response = await api.client.post(f"/api/recorders/{recorder_id}/lease")

    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == ["path", "recorderId"]


async def test_run_without_a_recorder_has_a_lease_with_the_runs_id(api: Api) -> None:
    run = await api.record(sample_run(finished=False))

    (lease,) = (await api.get(f"/api/runs/{run.root}/leases")).json()["items"]

    assert (lease["recorderId"], lease["leaseSeconds"]) == (str(run.root), 900.0)


async def test_leases_of_a_missing_run_get_404(api: Api) -> None:
    response = await api.get(f"/api/runs/{new_id()}/leases")

    assert response.status_code == 404
    assert response.json()["code"] == "not_found"
