"""The demonstration's failed run."""

from pathlib import Path

import httpx2

from health.billing import record_failure
from tests.api.commands import serving_here
from tests.trees import complete


def test_failure_two_sub_agents_deep_is_recorded_with_costs(
    database_url: str, tmp_path: Path
) -> None:
    with serving_here(database_url, tmp_path) as address:
        root_plan_id = record_failure(address, "any")
        run = httpx2.get(f"{address}/api/runs/{root_plan_id}", timeout=60).json()
        tree = complete(httpx2.get(f"{address}/api/plans/{root_plan_id}/tree", timeout=60).json())

    names = []
    [step] = tree["agentExecutions"]
    while step is not None:
        [round_] = step["thinkActs"]
        call = round_["toolCalls"][-1]
        names.append((step["agentName"], call["name"], call["error"]["type"]))
        step = call["subPlans"][0]["agentExecutions"][0] if call["subPlans"] else None
    assert (run["status"], run["failures"], run["unpricedCalls"]) == ("failed", 1, 0)
    assert run["costUsd"] > 0
    assert names == [
        ("billing", "ask_ledger", "TimeoutError"),
        ("ledger", "ask_bank", "TimeoutError"),
        ("bank", "http_get", "TimeoutError"),
    ]
