"""A failed call of a captured run shows its message in the tree, whatever else its error lacks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Api
from tests.otel import captured as frameworks
from tests.otel.coding_agents import captured as coding_agents
from tests.otel.projections import Projected
from tests.otel.sdks import captured as sdks
from tests.profiles import quick_among
from tracer.records import Kind, Status

WITHOUT_MESSAGE = {
    "claude-code-denied-content-on": 1,  # a call that the user denied: its reason is `denied`
    "mastra-failing": 1,  # the round's span has no error; that of its agent has
}


CODING_AGENTS = sorted(folder.name for folder in coding_agents.CAPTURES.iterdir())
NAMES = (
    *frameworks.NAMES,
    *(name for name in sdks.NAMES if name.endswith("-failing")),
    *CODING_AGENTS,
)
QUICK = (
    *(*WITHOUT_MESSAGE, "codex-failing-tool", "vercel_v6-failing"),
    "langgraph-openinference-single",
)


def _capture(name: str) -> tuple[Path, list[Projected]]:
    """Return the folder of a capture and its runs."""
    if name in CODING_AGENTS:
        messages = coding_agents.messages_of(name)
        return coding_agents.CAPTURES / name, coding_agents.projected(messages)
    of = frameworks if name in frameworks.NAMES else sdks
    return of.CAPTURES / name, frameworks.projected(of.spans_of(name))


def _requests(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the path, the media type and the body of each request of spans or log records."""
    listed = folder / "requests.json"
    sent = json.loads(listed.read_text()) if listed.is_file() else []
    by_file = {each["file"]: (each["path"], each["headers"]["content-type"]) for each in sent}
    for file in sorted(folder.glob("[0-9]*")):
        name = file.name.removesuffix(".gz")
        media_type = "application/json" if ".json" in name else "application/x-protobuf"
        path, media_type = by_file.get(name, ("/v1/traces", media_type))
        if path != "/v1/metrics":
            body = file.read_bytes()
            yield path, media_type, gzip.decompress(body) if file.suffix == ".gz" else body


def _recorded(runs: Iterable[Projected]) -> dict[str, str | None]:
    return {
        str(record_id): record["error_message"]
        for run in runs
        for kind in (Kind.THINK_ACT, Kind.TOOL_CALL)
        for record_id, record in run.records[kind].items()
        if record["status"] is Status.FAILED
    }


def _shown(node: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the id of each failed round and call of a tree, and the message that it shows."""
    if node["kind"] in ("thinkAct", "toolCall") and node["status"] == "failed":
        yield node[f"{node['kind']}Id"], node["error"] and node["error"]["message"]
    for children in ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced"):
        for child in node.get(children, ()):
            yield from _shown(child)


@pytest.mark.parametrize("name", quick_among(NAMES, QUICK))
async def test_failed_calls_of_every_capture_show_their_message(api: Api, name: str) -> None:
    folder, runs = _capture(name)
    recorded = _recorded(runs)
    if recorded:
        for path, media_type, body in _requests(folder):
            headers = {"Content-Type": media_type}
            answer = await api.client.post(path, content=body, headers=headers)
            assert answer.status_code == 200, answer.text
        await api.project()
    shown: dict[str, str | None] = {}
    for run in runs if recorded else ():
        tree: Any = await api.read(f"/api/plans/{run.root_plan_id}/tree", payloads="full")
        shown |= _shown(tree)
    assert shown == recorded
    assert list(shown.values()).count(None) == WITHOUT_MESSAGE.get(name, 0)
