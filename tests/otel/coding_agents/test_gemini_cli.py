"""Gemini CLI sends each round and each batch of calls of the main agent as a trace of its own.

System prompts and descriptions of tools were removed from the capture with sub-agents.
"""

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
    ("capture", "prompt", "count"),
    [
        (NAME, "Say how many planets the list has.", 5),
        ("gemini-cli-subagents", "[pair] Count the moons and the rings.", 5),
    ],
)
@pytest.mark.parametrize("signals", [(), ("traces",)])
def test_runs_of_a_prompt_show_it_and_share_its_id(
    capture: str, prompt: str, count: int, signals: tuple[str, ...]
) -> None:
    runs = [run.whole_run for run in projected(messages_of(capture, *signals))]

    titles = [run["title"] for run in runs]
    if signals:  # without log records, spans of calls have no prompt
        assert titles[::2] == [prompt] * len(titles[::2])
    else:
        assert titles == [prompt] * count
    (key,) = {tuple(run["work_keys"]) for run in runs}
    assert key == (runs[0]["session_id"],)


def test_captured_sub_agents_are_below_the_calls_that_started_them() -> None:
    runs = projected(messages_of("gemini-cli-subagents"))

    shown = [
        (
            run.records[Kind.TOOL_CALL][plan["tool_call_id"]]["result"].splitlines()[0],
            plan["agent_name"],
            plan["user_request"],
            plan["summary"],
            plan["inferred"],
        )
        for run in runs
        for plan in run.records[Kind.PLAN].values()
        if plan["tool_call_id"] is not None
    ]
    first = "Subagent 'generalist' finished."
    assert sorted(shown) == [
        (first, "generalist", "[pair/a] Count the moons.", "There are 95 moons.", False),
        (first, "generalist", "[pair/b] Count the rings.", "There are 7 rings.", False),
    ]


def test_sub_agent_that_ended_without_its_goal_failed() -> None:
    output = "Subagent 'generalist' finished.\nTermination Reason: MAX_TURNS\nResult:\n"
    part = {"functionResponse": {"name": "invoke_agent", "response": {"output": output}}}
    shown = {"isSubagentProgress": True, "terminateReason": "MAX_TURNS"}
    answer = {"status": "success", "response": {"responseParts": [part], "resultDisplay": shown}}
    attributes = {
        "gen_ai.operation.name": "tool_call",
        "gen_ai.tool.name": "invoke_agent",
        "gen_ai.output.messages": json.dumps(answer),
    }

    call = the_call(projection_of(make_span(1, "tool_call", attributes, scope="gemini-cli")))

    assert (call["status"], call["result"]) == ("failed", output)


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


@pytest.mark.parametrize("name", [NAME, "gemini-cli-subagents"])
def test_records_are_equal_for_any_order_of_the_requests(name: str) -> None:
    messages = single(messages_of(name))
    random.Random(0).shuffle(messages)

    pairs = zip(projected(messages), projected(messages_of(name)), strict=True)

    assert [differences(*pair) for pair in pairs] == [[]] * 5
