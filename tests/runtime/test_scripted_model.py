"""The scripted model rejects unscripted requests and answers in any order of requests."""

import asyncio

import pytest

from tests.runtime.runs import script
from tracer.runtime.chat_model import Message
from tracer.runtime.scripted_model import (
    Gate,
    Script,
    ScriptedModel,
    ScriptError,
    Turn,
    call,
)

SYSTEM = Message("system", "You are the agent 'worker'.\n\nWork.")


def asked(request: str, *answers: str) -> list[Message]:
    return [SYSTEM, Message("user", request), *(Message("assistant", each) for each in answers)]


async def test_parallel_conversations_each_get_the_turns_of_their_script() -> None:
    model = ScriptedModel([script("A", "a0", "a1"), script("B", "b0", "b1")])

    conversations = [asked("B"), asked("A", "a0"), asked("B", "b0"), asked("A")]
    answers = await asyncio.gather(*(model.complete(each, []) for each in conversations))

    assert [each.text for each in answers] == ["b0", "a1", "b1", "a0"]
    model.check_used_up()


async def test_scripted_turn_with_a_gate_is_answered_when_the_gate_opens() -> None:
    gate = Gate()
    model = ScriptedModel([script("A", Turn("late", gate=gate))])

    answer = asyncio.create_task(model.complete(asked("A"), []))
    await gate.reached.wait()
    assert not answer.done()
    gate.opened.set()

    assert (await answer).text == "late"


@pytest.mark.parametrize(
    ("conversation", "said"),
    [
        (asked("C"), "No script would answer 'C'"),
        (asked("A and B"), "and 'A' and the script for worker and 'B' would answer"),
        (asked("A", "a0"), "has no turn 1"),
        ([Message("system", "You are the agent 'other'."), Message("user", "A")], "No script"),
        ([], "No script"),
    ],
)
async def test_unscripted_request_is_an_error_immediately_and_at_the_end(
    conversation: list[Message], said: str
) -> None:
    model = ScriptedModel([script("A", "a0", times=None), script("B", "b0", times=None)])

    with pytest.raises(ScriptError, match=said):
        await model.complete(conversation, [])
    with pytest.raises(ScriptError, match=said):
        model.check_used_up()


async def test_scripted_model_rejects_a_conversation_beyond_its_script() -> None:
    model = ScriptedModel([Script([Turn("x")], times=2)])
    await model.complete(asked("A"), [])
    await model.complete(asked("B"), [])

    with pytest.raises(ScriptError, match="more than 2 times"):
        await model.complete(asked("C"), [])


async def test_unused_scripted_turns_are_an_error_at_the_end() -> None:
    model = ScriptedModel([script("A", "a0", "a1")])
    await model.complete(asked("A"), [])

    with pytest.raises(ScriptError, match=r"Turn 1 of the script for worker and 'A' .* 0 of 1"):
        model.check_used_up()


def test_scripted_call_arguments_can_be_an_object_or_text() -> None:
    assert call("t", {"a": 1}, "").arguments == '{"a":1}'
    assert call("t", "{broken").arguments == "{broken"
    assert call("t").arguments == "{}"
