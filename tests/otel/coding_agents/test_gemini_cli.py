"""Gemini CLI sends each round and each batch of calls as a trace of its own."""

from __future__ import annotations

import random

from tests.otel.coding_agents.captured import messages_of, projected, single
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


def test_records_are_equal_for_any_order_of_the_requests() -> None:
    messages = single(messages_of(NAME))
    random.Random(0).shuffle(messages)

    pairs = zip(projected(messages), projected(messages_of(NAME)), strict=True)

    assert [differences(*pair) for pair in pairs] == [[]] * 5
