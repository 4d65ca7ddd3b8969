"""The adapter for chat completions, against a local server that speaks them."""

import json
import traceback
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.runtime.busy import busy_application
from tests.runtime.chat_server import ChatServer, Fault, serving
from tests.runtime.conftest import OpenBench
from tests.runtime.runs import application, outline, script
from tracer.errors import ConfigurationError, ModelError
from tracer.runtime.chat_model import ChosenCall, Message, ToolSpec, wire_messages
from tracer.runtime.openai_model import OpenAIModel
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools import tool

KEY = "sk-canary-4711"


@pytest.fixture
def server() -> ChatServer:
    return ChatServer(ScriptedModel([Script([Turn("fine")], times=None)]))


@pytest.fixture
async def model(server: ChatServer) -> AsyncIterator[OpenAIModel]:
    with serving(server):
        model = OpenAIModel("gpt-test", base_url=server.base_url, api_key=KEY, max_retries=2)
        yield model
        await model.aclose()


ASKED = [Message("system", "You are the agent 'worker'."), Message("user", "How?")]
SOON = {"retry-after-ms": "1"}


async def test_run_over_http_has_the_same_tree_as_with_the_scripted_model(
    open_bench: OpenBench,
) -> None:
    scripted = busy_application()
    on = await open_bench(scripted)
    first = await on.launcher.run("Everything")
    faults = [Fault(429, headers=SOON), Fault(503, headers=SOON), Fault(429, headers=SOON)]
    chat_server = ChatServer(scripted.model, *faults)  # type: ignore[arg-type]
    with serving(chat_server):
        adapter = OpenAIModel("gpt-test", base_url=chat_server.base_url, api_key=KEY)
        through_http = busy_application(adapter)
        there = await open_bench(through_http)
        second = await there.launcher.run("Everything")
        await adapter.aclose()

    one, other = await on.tree(first.root_plan_id), await there.tree(second.root_plan_id)
    assert first.status == second.status == "succeeded"
    assert outline(other) == outline(one)
    assert len(chat_server.faults) == 0
    rows = await there.rows(second.root_plan_id)
    assert {each["model"] for each in rows.think_acts} == {"gpt-test-2026"}
    assert {each["requestedModel"] for each in rows.think_acts} == {"gpt-test"}
    assert {each["inputTokens"] for each in rows.think_acts} == {11}
    assert len(rows.plans) == 5


async def test_rate_limited_and_failed_requests_are_retried_after_a_delay(
    model: OpenAIModel, server: ChatServer
) -> None:
    server.faults.extend([Fault(429, headers=SOON), Fault(500, headers=SOON)])

    answer = await model.complete(ASKED, [])

    assert answer.text == "fine"
    assert (answer.input_tokens, answer.output_tokens, answer.cost_usd) == (11, 7, None)
    assert (answer.model, answer.finish_reason) == ("gpt-test-2026", "stop")
    assert len(server.requests) == 3


async def test_request_fails_after_the_last_retry(model: OpenAIModel, server: ChatServer) -> None:
    server.faults.extend([Fault(429, headers=SOON)] * 5)

    with pytest.raises(ModelError, match="429"):
        await model.complete(ASKED, [])

    assert len(server.requests) == 3


async def test_rejected_request_is_not_retried_and_hides_the_key(
    model: OpenAIModel, server: ChatServer
) -> None:
    body = json.dumps({"error": {"message": f"Bad key {KEY}."}}).encode()
    server.faults.append(Fault(401, body))

    with pytest.raises(ModelError, match=r"Bad key \(the key\)") as caught:
        await model.complete(ASKED, [])

    # As it is recorded: causes and contexts included.
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert len(server.requests) == 1


async def test_unreachable_model_server_fails_the_round() -> None:
    model = OpenAIModel("gpt-test", base_url="http://127.0.0.1:9/v1", api_key=KEY, max_retries=0)

    with pytest.raises(ModelError, match="request to the model failed"):
        await model.complete(ASKED, [])
    await model.aclose()


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{}]}',
        b"[]",
        b'"fine"',
        b"<html></html>",
        b"",
    ],
)
async def test_answer_of_an_unknown_form_fails_only_the_round(
    model: OpenAIModel, server: ChatServer, open_bench: OpenBench, body: bytes
) -> None:
    server.faults.append(Fault(200, body))
    on = await open_bench(application(model))

    outcome = await on.launcher.run("How?", agent="worker")

    [think_act] = (await on.rows(outcome.root_plan_id)).think_acts
    assert (think_act["status"], think_act["reason"]) == ("failed", "model_error")


async def test_tool_calls_in_nonstandard_forms_are_accepted(
    model: OpenAIModel, server: ChatServer
) -> None:
    function = {"name": "add", "arguments": {"a": 1}}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": 7, "type": "function", "function": function},
            {"type": "function", "function": {"name": "add", "arguments": None}},
            {"id": "", "type": "custom", "custom": {"name": "free", "input": "text"}},
        ],
    }
    usage = {"prompt_tokens": -1, "completion_tokens": "many"}
    body = {"choices": [{"message": message}], "usage": usage, "model": None}
    server.faults.append(Fault(200, json.dumps(body).encode()))

    answer = await model.complete(ASKED, [])

    assert answer.tool_calls == (
        ChosenCall("add", '{"a": 1}', "7"),
        ChosenCall("add", "", None),
        ChosenCall("free", "text", ""),
    )
    assert (answer.model, answer.input_tokens, answer.output_tokens) == (None, None, None)


async def test_refusal_text_of_the_model_is_its_answer(
    model: OpenAIModel, server: ChatServer
) -> None:
    message = {"role": "assistant", "content": None, "refusal": "I won't."}
    server.faults.append(Fault(200, json.dumps({"choices": [{"message": message}]}).encode()))

    assert (await model.complete(ASKED, [])).text == "I won't."


async def test_results_of_calls_with_repeated_ids_are_sent_under_unique_ids(
    open_bench: OpenBench,
) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    first = [call("add", {"a": 1, "b": 1}, each) for each in ("c", "c", "", None, "c_2")]
    second = [call("add", {"a": 2, "b": 2}, "c")]
    chat_server = ChatServer(ScriptedModel([script("Add", first, second, "done")]))
    with serving(chat_server):
        adapter = OpenAIModel("gpt-test", base_url=chat_server.base_url, api_key=KEY)
        on = await open_bench(application(adapter, [add]))
        outcome = await on.launcher.run("Add", agent="worker")
        await adapter.aclose()

    last = chat_server.requests[-1]["messages"]
    chosen = [each["id"] for each in last if "tool_calls" in each for each in each["tool_calls"]]
    answered = [each["tool_call_id"] for each in last if each["role"] == "tool"]
    assert chosen == answered == ["c", "c_3", "call_1", "call_2", "c_2", "c_4"]
    rows = await on.rows(outcome.root_plan_id)
    ids = [
        each["providerCallId"] for each in sorted(rows.tool_calls, key=lambda e: e["toolCallId"])
    ]
    assert ids == ["c", "c", "", None, "c_2", "c"]
    [offered] = chat_server.requests[0]["tools"]
    assert offered["function"]["description"] == "Adds."
    assert offered["function"]["parameters"]["required"] == ["a", "b"]


async def test_text_with_lone_surrogates_is_sent_as_it_is_stored(
    model: OpenAIModel, server: ChatServer
) -> None:
    await model.complete([Message("user", "a\0b\ud800c")], [ToolSpec("t", "d", {})])

    [request] = server.requests
    assert request["messages"][0]["content"] == "a␛0000b␛d800c"
    assert request["tools"][0]["function"]["name"] == "t"


def test_messages_without_tool_calls_are_sent_with_role_and_content_only() -> None:
    assert wire_messages([Message("user", "x"), Message("assistant", "")]) == [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": ""},
    ]


def test_missing_api_key_error_names_the_variable_to_set(monkeypatch: Any) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIModel("gpt-test")


async def test_call_of_a_listed_model_through_a_proxy_has_a_cost_and_no_provider(
    server: ChatServer,
) -> None:
    with serving(server):
        model = OpenAIModel("claude-sonnet-4-5", base_url=server.base_url, api_key=KEY)
        answer = await model.complete(ASKED, [])
        await model.aclose()

    assert (answer.input_tokens, answer.output_tokens) == (11, 7)
    assert (answer.provider, answer.cost_usd) == (None, Decimal("0.000138"))


async def test_parameters_are_sent_and_recorded_with_tools_and_finish_reasons(
    open_bench: OpenBench,
) -> None:
    @tool
    async def measure(patient: str) -> str:
        """Measure."""
        return "120/80"

    turns = [Turn(calls=[call("measure", {"patient": "p-1"})]), Turn("fine")]
    chat_server = ChatServer(ScriptedModel([Script(turns, times=None)]))
    with serving(chat_server):
        model = OpenAIModel(
            "gpt-test", base_url=chat_server.base_url, api_key=KEY, parameters={"temperature": 0.2}
        )
        on = await open_bench(application(model, [measure]))
        outcome = await on.launcher.run("How is p-1?", agent="worker")
        await model.aclose()

    assert [each["temperature"] for each in chat_server.requests] == [0.2, 0.2]
    rows = await on.rows(outcome.root_plan_id)
    first, last = [await on.think_act(UUID(each["thinkActId"])) for each in rows.think_acts]
    assert (first.parameters, first.finish_reasons) == ('{"temperature": 0.2}', ["tool_calls"])
    assert last.finish_reasons == ["stop"]
    [offered] = json.loads(first.offered_tools or "")
    assert (offered["name"], offered["description"]) == ("measure", "Measure.")
    assert (last.offered_tools, last.offered_tools_from) == (
        first.offered_tools,
        first.think_act_id,
    )
