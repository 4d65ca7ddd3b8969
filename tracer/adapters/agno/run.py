"""Record one run of an Agno agent or team: its plan, rounds and calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agno.exceptions import RunCancelledException
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.run.team import TeamRunOutput
from agno.tools.function import FunctionCall, ToolResult

from tracer.adapters.hooks import parameters_of
from tracer.client import Tracing
from tracer.client.work import Chosen, Plan, Step, ThinkAct, ToolCall, Work
from tracer.records import Reason
from tracer.records.prices import TokenUsage, cost_of

_MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")

_STATUS_OF_EVENT = {
    "Completed": RunStatus.completed,
    "Paused": RunStatus.paused,
    "Cancelled": RunStatus.cancelled,
    "Error": RunStatus.error,
}


class AgnoRun:
    """One run of an agent or a team."""

    def __init__(self, tracing: Tracing, plan: Plan, run_id: str | None, output: Any) -> None:
        """Create the run.

        Args:
            tracing: The connection that records the run.
            plan: The plan of the run. It has started already.
            run_id: Agno's id of the run.
            output: Agno's output object for the run, if it exists already.
        """
        self.tracing = tracing
        self.plan = plan
        self._run_id = run_id
        self._output = output
        self._final_event: tuple[str, Any] | None = None
        self._error: BaseException | None = None
        self._finish_reason: str | None = None
        self._chosen: dict[int, tuple[Any, ToolCall]] = {}
        """The requested calls whose tool Agno has not looked up yet: the call's object in the
        model's answer and its record, by the `id()` of the object."""
        self._calls: dict[int, tuple[FunctionCall, ToolCall]] = {}
        """The open calls whose tool is known, by the `id()` of Agno's `FunctionCall`."""
        self._errors: dict[ToolCall, BaseException] = {}
        self._open: dict[Work, None] = {}
        """The rounds and calls that have not ended."""

    @property
    def step(self) -> Step:
        """The plan's only step, which the agent executes."""
        return self.plan.own_step

    # --- Rounds --------------------------------------------------------------------------------

    def ask(self, model: Any, messages: Iterable[Any], tools: Any = None) -> ThinkAct:
        """Record a request to a model."""
        self._finish_reason = None
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

    def note_finish_reason(self, choices: Sequence[Any]) -> None:
        """Note why the model stopped (the finish reason).

        Args:
            choices: The choices in a response of OpenAI's API, or in a part of a streamed one.
        """
        if choices and choices[0].finish_reason:
            self._finish_reason = choices[0].finish_reason

    def answer(self, thought: ThinkAct, model: Any, message: Any) -> None:
        """Record a model's answer and the calls that it chose.

        Args:
            thought: The round.
            model: Agno's model.
            message: Agno's message of the assistant.
        """
        self._open.pop(thought, None)
        requested: list[Any] = message.tool_calls or []
        usage = _tokens(message.metrics)
        calls = thought.finish(
            _text(message.content),
            input_tokens=usage and usage.input,
            output_tokens=usage and usage.output,
            cost_usd=cost_of(usage, model.id) if usage and model.id else None,
            cache_read_tokens=(usage and usage.cache_read) or None,
            cache_written_tokens=(usage and usage.cache_written) or None,
            reasoning_tokens=(usage and usage.reasoning) or None,
            finish_reasons=self._finish_reason,
            tool_calls=[_choice(each) for each in requested],
        )
        for each, call in zip(requested, calls, strict=True):
            self._chosen[id(each)] = each, call
            self._open[call] = None

    def fail_thought(self, thought: ThinkAct, error: BaseException) -> None:
        """Record that a request to a model failed. Agno itself keeps only the error's message."""
        self._error = error
        self._open.pop(thought, None)
        thought.end_with(error)

    # --- Calls ---------------------------------------------------------------------------------

    def note_tool(self, chosen: Any, function_call: FunctionCall | None) -> None:
        """Note which tool a requested call will run. If the call cannot run, record the reason.

        Args:
            chosen: The call's object in the model's answer.
            function_call: Agno's object with the tool and its arguments, or with an error; None if
                the agent does not have the tool.
        """
        _, call = self._chosen.pop(id(chosen), (None, None))
        if call is None:
            return
        if function_call is None:
            call.fail("The agent has no such tool.", Reason.UNKNOWN_TOOL)
        elif function_call.error is not None:
            call.fail(function_call.error, Reason.INVALID_ARGUMENTS)
        else:
            self._calls[id(function_call)] = function_call, call
            return
        self._open.pop(call, None)

    def start(self, function_call: FunctionCall) -> ToolCall:
        """Record that a tool is about to run. Return the tool call."""
        _, call = self._calls.get(id(function_call), (None, None))
        if call is None:
            # In a run that continues after an approval, an earlier run recorded the model's answer.
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

    def note_error(self, call: ToolCall, error: BaseException) -> None:
        """Keep a tool's exception, because Agno itself keeps only the message."""
        self._errors[call] = error

    def end(self, function_call: FunctionCall, call: ToolCall, outcome: Any) -> None:
        """Record the result or error of a call.

        Args:
            function_call: Agno's object for the call.
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
        """Record that an exception ended a call."""
        self._error = error
        _end_with(call, error)
        self._forget(function_call, call)

    def end_generator(self, function_call: FunctionCall, succeeded: bool, output: Any) -> None:
        """Record the end of a call whose tool is a generator."""
        _, call = self._calls.get(id(function_call), (None, None))
        if call is None:
            return
        if succeeded:
            call.finish(output)
        else:
            call.fail(self._errors.get(call) or function_call.error or "It failed.")
        self._forget(function_call, call)

    def reject_over_limit(self, function_call: FunctionCall) -> None:
        """Record a call that exceeds the run's limit of tool calls."""
        _, call = self._calls.get(id(function_call), (None, None))
        if call is not None:
            call.fail("The run has reached its limit of tool calls.", Reason.BUDGET_EXHAUSTED)
            self._forget(function_call, call)

    def _forget(self, function_call: FunctionCall, call: ToolCall) -> None:
        self._calls.pop(id(function_call), None)
        self._errors.pop(call, None)
        self._open.pop(call, None)

    # --- The run -------------------------------------------------------------------------------

    def note_stream_item(self, item: Any) -> None:
        """Note the run's status from the final event of a stream.

        The status in Agno's output object may be out of date.
        """
        if getattr(item, "run_id", None) != self._run_id:
            return
        if isinstance(item, (RunOutput, TeamRunOutput)):
            self._output = item
            return
        event = str(getattr(item, "event", "")).removeprefix("Team").removeprefix("Run")
        # Only the first event counts: Agno sends "completed" after "cancelled".
        if event in _STATUS_OF_EVENT and self._final_event is None:
            self._final_event = _STATUS_OF_EVENT[event], getattr(item, "content", None)

    def finish(self, output: Any = None) -> None:
        """Record the end of the run.

        Args:
            output: Agno's output object, if Agno's function returned one.
        """
        output = output or self._output
        status, content = self._final_event or (
            getattr(output, "status", None),
            getattr(output, "content", None),
        )
        self._cancel_open(Reason.DEFERRED if status == RunStatus.paused else None)
        if status == RunStatus.error:
            error = self._error
            is_cause = error is not None and str(error) in str(content)
            self.plan.fail(error if error is not None and is_cause else str(content))
        elif status == RunStatus.cancelled:
            self.plan.cancel()
        else:
            self.plan.finish(None if status == RunStatus.paused else content)

    def fail(self, error: BaseException) -> None:
        """Record that an exception ended the run."""
        self._cancel_open(None)
        _end_with(self.plan, error)

    def _cancel_open(self, reason: str | None) -> None:
        for work in list(self._open):
            work.cancel(reason)
        self._open.clear()


def agent_run(tracing: Tracing, arguments: Mapping[str, Any]) -> AgnoRun:
    """Start the plan of a run.

    Args:
        tracing: The connection that records the run.
        arguments: The arguments of the Agno function that executes the run.
    """
    owner, context, output = (
        arguments.get("agent") or arguments["team"],
        arguments["run_context"],
        None,
    )
    output = arguments.get("run_response")
    requested = getattr(output, "input", None)
    name = owner.name or owner.id
    plan = tracing.plan(
        agent=name,
        request=arguments.get("input") or (requested and requested.input_content_string()),
        # An agent without a session creates one and keeps it, for all users.
        session_id=context.session_id if context.session_id != owner.session_id else None,
        subject=context.user_id,
    )
    plan.session_id = plan.session_id or context.session_id
    plan.start()
    return AgnoRun(tracing, plan, context.run_id, output)


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
    """Return the tokens of an answer; None if the provider did not report them."""
    if not (metrics.input_tokens or metrics.output_tokens):
        return None
    return TokenUsage(
        metrics.input_tokens,
        metrics.output_tokens,
        metrics.cache_read_tokens or 0,
        metrics.cache_write_tokens or 0,
        metrics.reasoning_tokens or 0,
    )
