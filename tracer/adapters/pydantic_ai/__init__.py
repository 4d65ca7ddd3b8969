"""Record the runs of pydantic-ai's agents.

    pydantic_ai.install(tracing)                                  # every agent of the process
    agent = Agent(model, capabilities=[RecordingCapability(tracing)])     # or one

Each run is recorded as a plan with one step. A run inside a tool call is a sub-plan of that call.
If a model chose a call that never ran, the call is recorded as cancelled when the run ends. In this
case pydantic-ai skipped the call, or deferred it to another run (reason `deferred`).

The call of an output tool is recorded only if the tool has a function, as in pydantic-ai's own
spans. Realtime sessions are not recorded. Agents under a durable execution engine are not recorded
either, because the engine replays their runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from tracer.errors import missing_extra

try:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import Instrumentation
    from pydantic_ai.capabilities.abstract import (
        AbstractCapability,
        CapabilityOrdering,
        leaf_capabilities,
    )
    from pydantic_ai.exceptions import (
        ApprovalRequired,
        CallDeferred,
        ModelRetry,
        SkipModelRequest,
        SkipToolExecution,
        ToolFailed,
        ToolFailedError,
        ToolRetryError,
    )
    from pydantic_ai.messages import ToolCallPart, ToolReturn

    from tracer.adapters.hooks import Uninstall, log_errors, read_prices, wrap
except ImportError as error:
    raise missing_extra(__name__, "pydantic-ai", error) from error
from pydantic import ValidationError

from tracer.adapters.pydantic_ai.run import PydanticAIRun, arguments_of
from tracer.client import Tracing
from tracer.client.work import ToolCall
from tracer.records import Reason

_REFUSALS = (ValidationError, ModelRetry, ToolFailed, ToolRetryError, ToolFailedError)


def install(tracing: Tracing) -> Uninstall:
    """Record the runs of all agents of this process.

    If an agent or a run has its own `RecordingCapability`, only that capability records the run.

    Args:
        tracing: The connection from `tracer.connect()`.

    Returns:
        A function that stops the recording.
    """

    def iter_(
        original: Any, agent: Agent[Any, Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        with log_errors("Agent.iter"):
            if not _has_recorder_or_replays(agent):
                recorder = RecordingCapability(tracing)
                options = {
                    **options,
                    "capabilities": [recorder, *(options.get("capabilities") or ())],
                }
        return original(*args, **options)

    read_prices()
    # All ways to run an agent call `Agent.iter`.
    return wrap(Agent, "iter", iter_)


def _has_recorder_or_replays(agent: Agent[Any, Any]) -> bool:
    return any(
        isinstance(each, RecordingCapability)
        or type(each).__module__.startswith("pydantic_ai.durable_exec.")
        for each in leaf_capabilities(agent.root_capability)
    )


@dataclass(eq=False)
class RecordingCapability(AbstractCapability[Any]):
    """A capability that records the runs of the agents that have it."""

    tracing: Tracing
    _: KW_ONLY
    id: str | None = "tracer.adapters.pydantic_ai"
    _run: PydanticAIRun | None = field(default=None, init=False, repr=False)
    """The open run. Each run has its own copy of the capability."""

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[Any]]) -> AbstractCapability[Any]:
        """Return the last of several capabilities, so that a run is recorded only once."""
        return capabilities[-1]

    def get_ordering(self) -> CapabilityOrdering:
        """Return the order: this capability wraps all others except pydantic-ai's own tracing."""
        return CapabilityOrdering(position="outermost", wrapped_by=[Instrumentation])

    def _realtime_uncalled_hooks(self) -> tuple[str, ...]:
        return ()  # avoids a warning in the user's program

    async def for_run(self, ctx: Any) -> RecordingCapability:
        """Return a copy of this capability for one run."""
        copy = replace(self)
        copy._run = None if ctx.realtime else PydanticAIRun(self.tracing)
        return copy

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """Record a run."""
        run = self._run
        with log_errors("wrap_run"):
            if run is not None:
                run.start(ctx)
        if run is None or run.plan is None:
            self._run = None
            return await handler()
        try:
            with run.plan.as_current():
                with log_errors("wrap_run"):
                    await run.plan.durable()
                result = await handler()
        except BaseException as error:
            with log_errors("wrap_run"):
                run.end_with(error)
            raise
        finally:
            self._run = None
        with log_errors("wrap_run"):
            run.finish(result.output)
        return result

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Record a request to the model, after all other capabilities have changed it."""
        with log_errors("prepare_model_request"):
            if self._run is not None and (thought := self._run.ask(request_context)) is not None:
                await thought.durable()
        return request_context

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """Record the model's answer, before any of the chosen tools runs."""
        run = self._run
        if run is None:
            return await handler(request_context)
        with log_errors("wrap_model_request"):
            run.end_unrun(ctx.messages)
        try:
            response = await handler(request_context)
        except SkipModelRequest as skip:
            with log_errors("wrap_model_request"):
                run.record_answer(request_context, skip.response)
            raise
        except BaseException as error:
            with log_errors("wrap_model_request"):
                run.record_failure(error)
            raise
        with log_errors("wrap_model_request"):
            run.record_answer(request_context, response)
        return response

    async def wrap_tool_validate(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Record that a tool's arguments were rejected."""
        try:
            return await handler(args)
        except _REFUSALS as error:
            with log_errors("wrap_tool_validate"):
                if self._run is not None:
                    self._run.call(call).fail(_cause(error), Reason.INVALID_ARGUMENTS)
            raise

    async def wrap_tool_execute(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Record a tool call."""
        record: ToolCall | None = None
        with log_errors("wrap_tool_execute"):
            if self._run is not None:
                record = self._run.call(call)
        return await _recorded(record, handler, args)

    async def wrap_output_process(
        self, ctx: Any, *, output_context: Any, output: Any, handler: Any
    ) -> Any:
        """Record an output function as a tool call."""
        record: ToolCall | None = None
        with log_errors("wrap_output_process"):
            run = self._run
            if run is not None and output_context.has_function and not ctx.partial_output:
                call: ToolCallPart | None = output_context.tool_call
                if call is not None:
                    record = run.unlisted_call(
                        call.tool_name, arguments_of(call), call.tool_call_id
                    )
                else:
                    name = output_context.function_name or "output_function"
                    record = run.unlisted_call(name, output)
        return await _recorded(record, handler, output)


async def _recorded(call: ToolCall | None, handler: Any, value: Any) -> Any:
    """Run a tool and record the call."""
    if call is None:
        return await handler(value)
    try:
        with call.as_current():
            with log_errors("tool call"):
                # A call that already started and was approved since is another attempt.
                call.start(call.attempt + call.has_started)
                await call.durable()
            result = await handler(value)
    except (ApprovalRequired, CallDeferred):
        raise  # the call may continue later in this run
    except BaseException as error:
        with log_errors("tool call"):
            _end_call(call, error)
        raise
    with log_errors("tool call"):
        call.finish(result.return_value if isinstance(result, ToolReturn) else result)
    return result


def _end_call(call: ToolCall, error: BaseException) -> None:
    if isinstance(error, SkipToolExecution):
        call.finish(error.result)
        return
    cause = _cause(error)
    if isinstance(cause, ModelRetry) and isinstance(cause.__context__, TimeoutError):
        call.fail(cause, Reason.TIMED_OUT)
    else:
        call.end_with(cause)


def _cause(error: BaseException) -> BaseException:
    """Return the tool's own exception if pydantic-ai's error wraps it, else the error itself."""
    if isinstance(error, (ToolRetryError, ToolFailedError)):
        return error.__cause__ or error
    return error
