"""Gemini CLI sends each round and each batch of calls as a trace of its own."""

from __future__ import annotations

import json
import random

import pytest

from tests.otel.coding_agents.captured import messages_of, projected, single
from tests.otel.made_traces import make_span, projection_of, the_call
from tests.otel.projections import differences
from tracer.records import Kind

NAME = "gemini-cli-two-tools"


def test_captured_rounds_and_calls_are_read_and_share_a_session() -> None:
    runs = projected(messages_of(NAME))

    rounds = [each for run in runs for each in run.records[Kind.THINK_ACT].values()]
    calls = [each for run in runs for each in run.records[Kind.TOOL_CALL].values()]
    assert len({run.whole_run["session_id"] for run in runs}) == 1
    assert [(each["input_tokens"], each["output_tokens"]) for each in rounds] == [
        (1101, 61),
        (1301, 72),
        (1501, 83),
    ]
    assert [
        (call["name"], call["status"].value, call["result"], call["provider_call_id"])
        for call in calls
    ] == [
        (
            "run_shell_command",
            "succeeded",
            "2 planets.txt",
            "run_shell_command__run_shell_command_1795631799067_0",
        ),
        ("read_file", "failed", "File not found.", "read_file__read_file_1795631799661_0"),
    ]
    assert '"file_path":"/srv/demo3/missing.txt"' in calls[1]["arguments"]


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("Output: wc: no file\nExit Code: 1\nProcess Group PGID: 4526", "failed"),
        ("<untrusted_context>\nOutput: \nExit Code: 127\n</untrusted_context>", "failed"),
        ("Output: Exit Code: 1\nExit Code: 2\nmore\nProcess Group PGID: 4526", "succeeded"),
        ("Output: 2 planets.txt\nProcess Group PGID: 4526", "succeeded"),
    ],
)
def test_shell_command_with_another_exit_code_than_zero_failed(output: str, status: str) -> None:
    part = {"functionResponse": {"name": "run_shell_command", "response": {"output": output}}}
    answer = {"status": "success", "response": {"responseParts": [part], "resultDisplay": "shown"}}
    attributes = {
        "gen_ai.operation.name": "tool_call",
        "gen_ai.tool.name": "run_shell_command",
        "gen_ai.output.messages": json.dumps(answer),
    }

    call = the_call(projection_of(make_span(1, "tool_call", attributes, scope="gemini-cli")))

    assert call["status"] == status
    assert call["error_message"] == ("shown" if status == "failed" else None)


def test_records_are_equal_for_any_order_of_the_requests() -> None:
    messages = single(messages_of(NAME))
    random.Random(0).shuffle(messages)

    pairs = zip(projected(messages), projected(messages_of(NAME)), strict=True)

    assert [differences(*pair) for pair in pairs] == [[]] * 5
