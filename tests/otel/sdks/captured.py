"""Captures of other tools' SDKs: their spans, and the facts of their runs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.otel.captured import projected
from tests.otel.decoded import spans_in
from tests.otel.projections import Projected
from tracer.otel.otlp import decode_json, decode_protobuf
from tracer.records import Kind, Status
from tracer.records.merge import Fields
from tracer.records.spans import Span

_ERRORS = re.compile(r"closed \w+ is not open|The scripted provider refuses this request\.")
_REDACTED = ("logfire", "logfire_chat")
"""SDKs that do not send the errors of tools: the OpenAI Agents SDK redacts them."""
_WITHOUT_CACHED_TOKENS = "vercel_v5"
"""An SDK that does not send how many tokens the provider read from its cache."""
_WITHOUT_REFUSED_REQUESTS = "openlit"
"""An SDK that does not send the messages of a request that the provider refused."""
CAPTURES = Path(__file__).parent / "captures"
NAMES = sorted(each.name for each in CAPTURES.iterdir())


@dataclass(frozen=True)
class Facts:
    """The facts of one run. The lists are sorted, because parallel work has no order."""

    agents: list[str]
    """Each agent: name, request, the text that the call above passed on, status, answer, rounds."""
    calls: list[str]
    """Each call: its agent and that agent's request, round, name, arguments, id, status, result."""
    tokens: tuple[int, int, int]
    """Input, cached and output tokens of the run."""


def spans_of(name: str) -> list[Span]:
    """Return the spans of a capture in the order in which they arrived."""
    spans: list[Span] = []
    for path in sorted((CAPTURES / name).glob("*.gz")):
        decode = decode_json if ".json" in path.suffixes else decode_protobuf
        decoded = decode(gzip.decompress(path.read_bytes()))
        assert decoded.refused == []
        spans += spans_in(decoded)
    return spans


def expected_facts(name: str) -> Facts:
    """Return the truth of a capture."""
    truth = json.loads((CAPTURES / name / "expected.json").read_text())
    if truth["sdk"] in _REDACTED:
        truth["calls"] = [{**call, "error": None} for call in truth["calls"]]
    if truth["sdk"] == _WITHOUT_REFUSED_REQUESTS:
        for agent in truth["agents"]:
            if all(each["status"] == "failed" for each in agent["rounds"]):
                agent["request"] = None
    if truth["sdk"] == _WITHOUT_CACHED_TOKENS:
        truth["tokens"]["cached"] = 0
        for each in (one for agent in truth["agents"] for one in agent["rounds"]):
            each["cached"] = 0
    return Facts(
        agents=_sorted(truth["agents"]),
        calls=_sorted(truth["calls"]),
        tokens=tuple(truth["tokens"][kind] for kind in ("input", "cached", "output")),
    )


def seen_facts(spans: Iterable[Span]) -> Facts:
    """Return the facts of the projected records."""
    (run,) = (run for run in projected(spans) if run.is_agent_work)
    return Facts(
        agents=_sorted(_agent(run, step_id) for step_id in run.records[Kind.STEP]),
        calls=_sorted(_call(run, call) for call in run.records[Kind.TOOL_CALL].values()),
        tokens=(
            _total(run, "input_tokens"),
            _total(run, "cache_read_tokens"),
            _total(run, "output_tokens"),
        ),
    )


def _sorted(facts: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in facts)


def _agent(run: Projected, step_id: UUID) -> dict[str, Any]:
    step = run.records[Kind.STEP][step_id]
    plan = run.records[Kind.PLAN][step["plan_id"]]
    call_id = plan["tool_call_id"]
    opener = json.loads(run.records[Kind.TOOL_CALL][call_id]["arguments"]) if call_id else None
    assert not plan["inferred"]
    return {
        "agent": step["agent_name"],
        "request": step["request"],
        "opened_by": next(iter(opener.values())) if opener else None,
        "status": step["status"].value,
        "answer": step["result"],
        "rounds": [_round(each) for each in _rounds(run, step_id).values()],
    }


def _rounds(run: Projected, step_id: UUID) -> dict[UUID, Fields]:
    """Return the rounds of an agent in their order."""
    rounds = sorted(run.records[Kind.THINK_ACT].items(), key=lambda item: item[1]["position"])
    return {round_id: row for round_id, row in rounds if row["step_id"] == step_id}


def _round(row: Fields) -> dict[str, Any]:
    return {
        "status": row["status"].value,
        "input": row["input_tokens"] or 0,
        "cached": row["cache_read_tokens"] or 0,
        "output": row["output_tokens"] or 0,
        "answer": row["thought"],
    }


def _call(run: Projected, call: Fields) -> dict[str, Any]:
    step = run.records[Kind.STEP][call["step_id"]]
    assert not call["inferred"]
    return {
        "agent": step["agent_name"],
        "request": step["request"],
        "round": [*_rounds(run, call["step_id"])].index(call["think_act_id"]),
        "name": call["name"],
        "arguments": json.loads(call["arguments"]),
        "provider_call_id": call["provider_call_id"],
        "status": call["status"].value,
        "result": call["result"] if call["status"] is Status.SUCCEEDED else None,
        "error": _error(call),
    }


def _error(call: Fields) -> str | None:
    """Return the scenario's error in the message or in the answer to the model."""
    if call["status"] is not Status.FAILED:
        return None
    found = _ERRORS.search(f"{call['error_message']} {call['result']}")
    return found[0] if found else None


def _total(run: Projected, field: str) -> int:
    return sum(row[field] or 0 for row in run.records[Kind.THINK_ACT].values())
