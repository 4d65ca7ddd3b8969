"""How work ended: failures, cancellations, pauses, hand-offs and timeouts in every language."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.otel.made_traces import make_span, projection_of, the_call

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}


def raised(error: str, message: str = "m") -> dict[str, Any]:
    return {
        "name": "exception",
        "attributes": {"exception.type": error, "exception.message": message},
    }


def ending(
    attributes: dict[str, Any] | None = None, **more: Any
) -> tuple[str, str | None, str | None]:
    call = the_call(
        projection_of(make_span(1, "execute_tool t", {**TOOL, **(attributes or {})}, **more))
    )
    return call["status"], call["reason"], call["error_message"]


@pytest.mark.parametrize(
    "error",
    [
        *("asyncio.exceptions.CancelledError", "trio.Cancelled", "KeyboardInterrupt"),
        *("java.util.concurrent.CancellationException", "java.lang.InterruptedException"),
        *("kotlinx.coroutines.JobCancellationException", "context.Canceled", "context canceled"),
        *("AbortError", "System.OperationCanceledException", "GeneratorExit", "anyio.Cancelled"),
        "System.Threading.Tasks.TaskCanceledException",
        *("tokio::task::JoinError::Cancelled", "concurrent.futures._base.CancelledError"),
        "agno.exceptions.StopAgentRun",
    ],
)
def test_cancellations_of_every_language_are_cancelled(error: str) -> None:
    assert ending(failed="", events=[raised(error)])[:2] == ("cancelled", None)


@pytest.mark.parametrize(
    "error",
    [
        *("langgraph.errors.GraphInterrupt", "langgraph.errors.NodeInterrupt"),
        *("pydantic_ai.exceptions.ApprovalRequired", "pydantic_ai.exceptions.CallDeferred"),
        *("GraphInterrupt", "pydantic_ai.exceptions.AgentRunPaused"),
        "crewai.flow.async_feedback.types.HumanFeedbackPending",
    ],
)
def test_paused_calls_are_deferred(error: str) -> None:
    assert ending(failed="", events=[raised(error)])[:2] == ("cancelled", "deferred")


def test_pause_that_only_the_status_names_is_deferred() -> None:
    status = "GraphInterrupt((Interrupt(value='Approve the transfer?'),))"
    assert ending(failed=status)[:2] == ("cancelled", "deferred")


@pytest.mark.parametrize("error", ["shop.HandoffException", "WorkflowSuspended", "Suspend"])
def test_error_of_a_program_that_sounds_like_control_flow_failed(error: str) -> None:
    assert ending(failed="", events=[raised(error)])[0] == "failed"


def test_hand_over_by_exception_succeeded() -> None:
    event = raised("langgraph.errors.ParentCommand", "Command(goto='billing')")
    assert ending(failed="ParentCommand", events=[event]) == ("succeeded", None, None)


@pytest.mark.parametrize(
    "error",
    [
        *("TimeoutError", "asyncio.exceptions.TimeoutError", "httpx.ReadTimeout"),
        *("java.net.SocketTimeoutException", "java.util.concurrent.TimeoutException"),
        *("kotlinx.coroutines.TimeoutCancellationException", "openai.APITimeoutError"),
        *("context deadline exceeded", "ETIMEDOUT", "System.TimeoutException", "timeout"),
    ],
)
def test_timeouts_of_every_language_are_timed_out(error: str) -> None:
    assert ending(failed="", events=[raised(error)])[:2] == ("failed", "timed_out")


def test_go_error_without_a_class_of_its_own_is_read_by_its_message() -> None:
    event = raised("*url.Error", 'Post "http://m": context canceled')
    assert ending(failed="", events=[event])[0] == "cancelled"


@pytest.mark.parametrize("key", ["gen_ai.tool.call.result", "tool_response", "gen_ai.tool.output"])
def test_mcp_result_that_is_an_error_failed_with_its_text(key: str) -> None:
    result = '{"content": [{"type": "text", "text": "no such file"}], "isError": true}'
    assert ending({key: result}) == ("failed", "tool_error", "no such file")


@pytest.mark.parametrize(
    "result",
    [
        '"{\\"content\\": [{\\"text\\": \\"no such file\\"}], \\"isError\\": true}"',
        "{'content': [{'type': 'text', 'text': 'no such file'}], 'isError': True}",
        "meta=None content=[TextContent(type='text', text='no such file', annotations=None)]"
        " structuredContent=None isError=True",
        "CallToolResult(content=[TextContent(type='text', text='no such file')], isError=True)",
        '{"jsonrpc": "2.0", "result": {"content": [{"text": "no such file"}], "isError": true}}',
        '[{"type": "tool_result", "is_error": true, "content": "no such file"}]',  # Anthropic
    ],
)
def test_spellings_of_results_that_are_errors_failed_with_their_text(result: str) -> None:
    found = ending({"gen_ai.tool.call.result": result})
    assert found == ("failed", "tool_error", "no such file")


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.tool.status": "error"},
        {"gen_ai.tool.is_error": True},
        {"process.exit.code": 2},  # GitHub Copilot CLI
    ],
)
def test_tool_call_whose_attributes_state_a_failure_failed(attributes: dict[str, Any]) -> None:
    found = ending({"gen_ai.tool.call.result": "no such file", **attributes})
    assert found == ("failed", "tool_error", "no such file")


@pytest.mark.parametrize("status", ["success", "error"])
def test_status_in_a_result_of_strands_decides(status: str) -> None:
    result = {"toolUseId": "c", "status": status, "content": [{"text": "no such file"}]}
    event = {"name": "gen_ai.choice", "attributes": {"message": json.dumps(result)}}
    found = ending(scope="strands.telemetry.tracer", events=[event])
    assert found[0] == ("failed" if status == "error" else "succeeded")
    assert found[2] == ("no such file" if status == "error" else None)


@pytest.mark.parametrize("attributes", [{"error.type": ""}, {"process.exit.code": 0}])
def test_attributes_without_a_failure_succeeded(attributes: dict[str, Any]) -> None:
    assert ending(attributes)[0] == "succeeded"


def test_error_type_without_a_status_failed() -> None:
    assert ending({"error.type": "ValueError"})[:2] == ("failed", "tool_error")


@pytest.mark.parametrize(
    "result",
    [
        "error: none found",
        '{"isError": false, "content": []}',
        '{"error": null, "status": "error"}',
        '{"text": "\\"isError\\": true"}',
        '{"isError": true}',
        "a manual says that isError=True is a failure",
        "meta=None content=[TextContent(text='isError=False')] isError=False",
    ],
)
def test_result_that_only_contains_the_word_error_succeeded(result: str) -> None:
    assert ending({"gen_ai.tool.call.result": result})[0] == "succeeded"
