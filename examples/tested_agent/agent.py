"""An agent that refunds invoices. It asks a second agent, the bookkeeper, before it pays."""

import json
from collections.abc import Callable
from datetime import date

import model

import tracer

tracing = tracer.connect()
Clock = Callable[[], date]


def run(request: str, today: Clock = date.today) -> str:
    """Answer a request."""
    return answer("billing", request, today)


def answer(agent: str, request: str, today: Clock) -> str:
    """Ask the model and call the tools that it chooses, until it has an answer."""
    with tracing.plan(request, agent=agent, request=request) as plan:
        for turn in model.conversation(agent, today()):
            with tracing.think_act(
                [{"role": "user", "content": request}], model="gpt-5-mini"
            ) as thought:
                chosen = [tracer.Chosen(name, json.dumps(given)) for name, given in turn.calls]
                calls = thought.finish(
                    turn.text, input_tokens=100, output_tokens=20, tool_calls=chosen
                )
            for call in calls:
                with call:
                    call.finish(use(call.name, json.loads(call.arguments), today))
        plan.finish(turn.text)
    return turn.text


def use(tool: str, given: dict[str, str], today: Clock) -> str:
    """Call a tool. One of them is the bookkeeper."""
    if tool == "ask_bookkeeper":
        return answer("bookkeeper", given["question"], today)
    return {"find_invoice": "INV-42: 12 EUR, Ada", "read_ledger": "paid"}.get(tool, "done")
