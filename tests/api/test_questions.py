"""Questions over HTTP that cannot be answered as they are asked."""

from __future__ import annotations

from tests.api.conftest import Api
from tests.sample_runs import sample_run


async def test_why_without_a_failed_run_says_that_no_run_failed(api: Api) -> None:
    await api.record(sample_run())

    answer = await api.client.get("/api/questions/why")

    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("No run has failed.")
