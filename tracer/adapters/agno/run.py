"""What is recorded of one run of an Agno agent or team: its plan, rounds and calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agno.exceptions import RunCancelledException
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.run.team import TeamRunOutput
from agno.tools.function import FunctionCall, ToolResult

from tracer.adapters.parameters import parameters_of
from tracer.client.block import Work
from tracer.client.tracing import Tracing
from tracer.client.work import Chosen, Plan, Step, ThinkAct, ToolCall
from tracer.records.prices import TokenUsage, cost_of
from tracer.records.status import Reason

_MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")

_STATUS_OF_EVENT = {
    "Completed": RunStatus.completed,
    "Paused": RunStatus.paused,
    "Cancelled": RunStatus.cancelled,
    "Error": RunStatus.error,
}


class AgentRun:
    """One run of an agent or a team, which has begun."""

    def __init__(self, tracing: Tracing, plan: Plan, run_id: str | None, output: Any) -> None:
        """Begin; the plan is started.

        Args:
            tracing: Where to record.
            plan: The plan.
            run_id: Agno's id of the run.
            output: What Agno writes down of it, where it has begun to.
        """
        self.tracing = tracing
        self.plan = plan
        self._run_id = run_id
        self._output = output
        self._told: tuple[str, Any] | None = None
        self._error: BaseException | None = None
        self._chosen: dict[int, tuple[Any, ToolCall]] = {}
        """The calls that no tool was looked up for yet, by the model's own object."""
        self._calls: dict[int, tuple[FunctionCall, ToolCall]] = {}
        """The calls that have a tool, by Agno's object."""
        self._errors: dict[ToolCall, BaseException] = {}
        self._open: dict[Work, None] = {}
        """The rounds and calls that have not ended."""

    @property
    def step(self) -> Step:
        """The step of the agent."""
        return self.plan.own_step

    # --- Rounds --------------------------------------------------------------------------------

    def ask(self, model: Any, messages: Iterable[Any], tools: Any = None) -> ThinkAct:
        """Record that a model is asked."""
        thought = self.tracing.think_act(
            [_message(each) for each in messages],
            model=model.id,
            provider=model.provider,
            parameters=parameters_of(model),
            tools=tools,
            within=self.step,
        )
        thought.start()
        self._open[thought] = None
        return thought

    def answer(self, thought: ThinkAct, model: Any, message: Any) -> None:
        """Record what a model answered, and the calls that it chose.

        Args:
            thought: The round.
            model: Agno's model.
            message: Agno's message of the assistant.
        """
        self._open.pop(thought, None)
        asked: list[Any] = message.tool_calls or []
        usage = _tokens(message.metrics)
        calls = thought.finish(
            _text(message.content),
            input_tokens=usage and usage.input,
            output_tokens=usage and usage.output,
            cost_usd=cost_of(usage, model.id) if usage and model.id else None,
            cache_read_tokens=(usage and usage.cache_read) or None,
            cache_written_tokens=(usage and usage.cache_written) or None,
            reasoning_tokens=(usage and usage.reasoning) or None,
            tool_calls=[_choice(each) for each in asked],
        )
        for each, call in zip(asked, calls, strict=True):
            self._chosen[id(each)] = each, call
            self._open[call] = None

    def fail_thought(self, thought: ThinkAct, error: BaseException) -> None:
        """Record that a model could not be asked; Agno keeps only the words of the error."""
        self._error = error
        self._open.pop(thought, None)
        thought.end_with(error)

    # --- Calls ---------------------------------------------------------------------------------

    def look_up(self, chosen: Any, found: FunctionCall | None) -> None:
        """Note which tool was found for a call.

        Args:
            chosen: The call as the model chose it.
            found: The tool with its arguments, or with why there are none.
        """
        _, call = self._chosen.pop(id(chosen), (None, None))
        if call is None:
            return
        if found is None:
            call.fail("The agent has no such tool.", Reason.UNKNOWN_TOOL)
        elif found.error is not None:
            call.fail(found.error, Reason.INVALID_ARGUMENTS)
        else:
            self._calls[id(found)] = found, call
            return
        self._open.pop(call, None)

    def start(self, function_call: FunctionCall) -> ToolCall:
        """Record that a tool is about to run, and return its call."""
        _, call = self._calls.get(id(function_call), (None, None))
        if call is None:
            # A run that goes on after its calls were approved was asked in another run.
            call = self.tracing.tool_call(
                function_call.function.name,
                function_call.arguments,
                provider_call_id=function_call.call_id,
                within=self.step,
            )
            self._calls[id(function_call)] = function_call, call
            self._open[call] = None
        call.start()
        return call

    def note(self, call: ToolCall, error: BaseException) -> None:
        """Keep what a tool raised, of which Agno keeps the words only."""
        self._errors[call] = error

    def end(self, function_call: FunctionCall, call: ToolCall, outcome: Any) -> None:
        """Record what a call came to.

        Args:
            function_call: The call in Agno's words.
            call: The call.
            outcome: Agno's `FunctionExecutionResult`.
        """
        error = self._errors.get(call)
        if outcome.status == "success":
            result = outcome.result
            call.finish(result.content if isinstance(result, ToolResult) else result)
        elif error is not None and str(error) == outcome.error:
            call.fail(error)
        else:
            call.fail(outcome.error or "It failed.")
        self._forget(function_call, call)

    def end_with(self, function_call: FunctionCall, call: ToolCall, error: BaseException) -> None:
        """Record that a call ended by an exception."""
        self._error = error
        _end_with(call, error)
        self._forget(function_call, call)

    def end_generator(self, function_call: FunctionCall, succeeded: bool, output: Any) -> None:
        """Record what a tool gave that Agno reads bit by bit."""
        _, call = self._calls.get(id(function_call), (None, None))
        if call is None:
            return
        if succeeded:
            call.finish(output)
        else:
            call.fail(self._errors.get(call) or function_call.error or "It failed.")
        self._forget(function_call, call)

    def refuse(self, function_call: FunctionCall) -> None:
        """Record that a run has used up its calls."""
        _, call = self._calls.get(id(function_call), (None, None))
        if call is not None:
            call.fail("The run has used up its tool calls.", Reason.BUDGET_EXHAUSTED)
            self._forget(function_call, call)

    def _forget(self, function_call: FunctionCall, call: ToolCall) -> None:
        self._calls.pop(id(function_call), None)
        self._errors.pop(call, None)
        self._open.pop(call, None)

    # --- The run -------------------------------------------------------------------------------

    def see(self, item: Any) -> None:
        """Note what a stream says of the run's end: Agno may go on with a copy of its output."""
        if getattr(item, "run_id", None) != self._run_id:
            return
        if isinstance(item, (RunOutput, TeamRunOutput)):
            self._output = item
            return
        event = str(getattr(item, "event", "")).removeprefix("Team").removeprefix("Run")
        # The first counts: what was cancelled is "completed" afterwards.
        if event in _STATUS_OF_EVENT and self._told is None:
            self._told = _STATUS_OF_EVENT[event], getattr(item, "content", None)

    def finish(self, output: Any = None) -> None:
        """Record what the run came to.

        Args:
            output: Agno's output, where it returns one.
        """
        output = output or self._output
        status, content = self._told or (
            getattr(output, "status", None),
            getattr(output, "content", None),
        )
        self._cancel_open(Reason.DEFERRED if status == RunStatus.paused else None)
        if status == RunStatus.error:
            error = self._error
            is_why = error is not None and str(error) in str(content)
            self.plan.fail(error if error is not None and is_why else str(content))
        elif status == RunStatus.cancelled:
            self.plan.cancel()
        else:
            self.plan.finish(None if status == RunStatus.paused else content)

    def fail(self, error: BaseException) -> None:
        """Record that the run ended by an exception."""
        self._cancel_open(None)
        _end_with(self.plan, error)

    def _cancel_open(self, reason: str | None) -> None:
        for work in list(self._open):
            work.cancel(reason)
        self._open.clear()


def agent_run(tracing: Tracing, given: Mapping[str, Any]) -> AgentRun:
    """Start what is recorded of a run.

    Args:
        tracing: Where to record.
        given: The arguments of Agno's own function for a run.
    """
    owner, context, output = given.get("agent") or given["team"], given["run_context"], None
    output = given.get("run_response")
    asked = getattr(output, "input", None)
    name = owner.name or owner.id
    plan = tracing.plan(
        agent=name,
        request=given.get("input") or (asked and asked.input_content_string()),
        session_id=context.session_id,
        subject=context.user_id,
    )
    plan.start()
    return AgentRun(tracing, plan, context.run_id, output)


def _end_with(work: Work, error: BaseException) -> None:
    if isinstance(error, RunCancelledException):
        work.cancel()
    else:
        work.end_with(error)


def _choice(tool_call: Mapping[str, Any]) -> Chosen:
    function = tool_call.get("function") or tool_call
    return Chosen(function.get("name") or "", function.get("arguments"), tool_call.get("id"))


def _message(message: Any) -> dict[str, Any]:
    return {
        name: value
        for name in _MESSAGE_FIELDS
        if (value := getattr(message, name, None)) is not None
    }


def _text(content: Any) -> Any:
    return content if content not in ("", [], None) else None


def _tokens(metrics: Any) -> TokenUsage | None:
    """Return the tokens of an answer; None where the provider did not say."""
    if not (metrics.input_tokens or metrics.output_tokens):
        return None
    return TokenUsage(
        metrics.input_tokens,
        metrics.output_tokens,
        metrics.cache_read_tokens or 0,
        metrics.cache_write_tokens or 0,
        metrics.reasoning_tokens or 0,
    )
