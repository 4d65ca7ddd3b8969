"""An agent written from scratch, recorded by hand: `tracer serve`, then run this file.

The model is a script. It looks up two patients, asks a colleague, and answers.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import tracer

MODEL = "gpt-5-mini"


class Answer(NamedTuple):
    """One answer of the model."""

    text: str
    calls: tuple[tracer.Chosen, ...] = ()


def chosen(name: str, provider_call_id: str, **arguments: str) -> tracer.Chosen:
    """Return a tool call as a model writes it."""
    return tracer.Chosen(name, json.dumps(arguments), provider_call_id)


SCRIPT = {
    "How are p-1 and p-2?": [
        Answer(
            "I measure both.",
            (
                chosen("measure", "call_0", patient="p-1"),
                chosen("measure", "call_1", patient="p-2"),
                chosen("ask_doctor", "call_2", question="Is 151/99 too high?"),
            ),
        ),
        Answer("p-1 is well, p-2 should see a doctor."),
    ],
    "Is 151/99 too high?": [
        Answer("", (chosen("look_up", "call_0", term="hypertension"),)),
        Answer("Yes."),
    ],
}


def agent(tracing: tracer.Tracing, name: str, request: str) -> str:
    """Ask the model and call tools until it has an answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": request}]
    with tracing.plan(request, agent=name, request=request) as plan:
        for answer in SCRIPT[request]:
            with tracing.think_act(messages, model=MODEL) as thought:
                calls = thought.finish(
                    answer.text, input_tokens=100, output_tokens=10, tool_calls=answer.calls
                )
            with ThreadPoolExecutor() as pool:
                results = list(pool.map(tracer.in_context(partial(run, tracing)), calls))
            messages.append({"role": "assistant", "content": answer.text})
            messages += [{"role": "tool", "content": result} for result in results]
        plan.finish(answer.text)
    return answer.text


def run(tracing: tracer.Tracing, call: Any) -> str:
    """Run one tool."""
    with call:
        arguments = json.loads(call.arguments)
        if call.name == "ask_doctor":
            result = agent(tracing, "doctor", arguments["question"])
        else:
            result = {"p-1": "121/79", "p-2": "151/99"}.get(
                arguments.get("patient"), "above 140/90"
            )
        call.finish(result)
    return result


def main() -> None:
    """Record one run, and print the answer."""
    with tracer.connect() as tracing:
        print(agent(tracing, "nurse", "How are p-1 and p-2?"))  # noqa: T201


if __name__ == "__main__":
    main()
