"""pydantic-ai: the runs of its agents, recorded as they happen.

    pydantic_ai.install(tracing)                                  # every agent of the process
    agent = Agent(model, capabilities=[RunRecorder(tracing)])     # or one

A run is a plan of one step, or a sub-plan of the tool call that it was started in. What the model
chose and never ran is cancelled when the run ends: skipped calls, and those that are `deferred` to
another run. Output tools are calls only where they have a function to run, as in pydantic-ai's own
spans. Realtime sessions, and agents under a durable engine, which replays them, are not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

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
except ImportError as error:
    raise ImportError(
        "pydantic-ai is not installed: pip install 'tracer-lineage[pydantic-ai]'"
    ) from error
from pydantic import ValidationError

from tracer.adapters.hooks import TakeBack, read_prices, unharmed, wrap
from tracer.adapters.pydantic_ai.run import AgentRun, arguments_of
from tracer.client.tracing import Tracing
from tracer.client.work import ToolCall
from tracer.records.status import Reason

_REFUSALS = (ValidationError, ModelRetry, ToolFailed, ToolRetryError, ToolFailedError)


def install(tracing: Tracing) -> TakeBack:
    """Record all agents from now on, and return what takes that back.

    A `RunRecorder` that an agent, or a run, has by itself goes first.

    Args:
        tracing: Where to record.
    """

    def iter_(
        original: Any, agent: Agent[Any, Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        with unharmed("Agent.iter"):
            if not _has_recorder_or_replays(agent):
                ours = RunRecorder(tracing)
                options = {
                    **options,
                    "capabilities": [ours, *(options.get("capabilities") or ())],
                }
        return original(*args, **options)

    read_prices()
    # All ways to run an agent come down to this one.
    return wrap(Agent, "iter", iter_)


def _has_recorder_or_replays(agent: Agent[Any, Any]) -> bool:
    return any(
        isinstance(each, RunRecorder)
        or type(each).__module__.startswith("pydantic_ai.durable_exec.")
        for each in leaf_capabilities(agent.root_capability)
    )


@dataclass(eq=False)
class RunRecorder(AbstractCapability[Any]):
    """A capability that records the runs of the agents that have it."""

    tracing: Tracing
    _: KW_ONLY
    id: str | None = "tracer.adapters.pydantic_ai"
    _run: AgentRun | None = field(default=None, init=False, repr=False)
    """What is under way, in the copy that each run has."""

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[Any]]) -> AbstractCapability[Any]:
        """Return the last one: a run is recorded once."""
        return capabilities[-1]

    def get_ordering(self) -> CapabilityOrdering:
        """Stand around what may change or answer a request, within pydantic-ai's own spans."""
        return CapabilityOrdering(position="outermost", wrapped_by=[Instrumentation])

    def _realtime_uncalled_hooks(self) -> tuple[str, ...]:
        return ()  # else there would be a warning in the user's program

    async def for_run(self, ctx: Any) -> RunRecorder:
        """Return a copy for one run."""
        copy = replace(self)
        copy._run = None if ctx.realtime else AgentRun(self.tracing)
        return copy

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """Record a run."""
        run = self._run
        with unharmed("wrap_run"):
            if run is not None:
                run.start(ctx)
        if run is None or run.plan is None:
            self._run = None
            return await handler()
        try:
            with run.plan.as_current():
                with unharmed("wrap_run"):
                    await run.plan.durable()
                result = await handler()
        except BaseException as error:
            with unharmed("wrap_run"):
                run.end_with(error)
            raise
        finally:
            self._run = None
        with unharmed("wrap_run"):
            run.finish(result.output)
        return result

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Record that the model is asked, with what it is given after all changes of others."""
        with unharmed("prepare_model_request"):
            if self._run is not None and (thought := self._run.ask(request_context)) is not None:
                await thought.durable()
        return request_context

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """Record what the model answers, before any of the tools that it chose runs."""
        run = self._run
        if run is None:
            return await handler(request_context)
        with unharmed("wrap_model_request"):
            run.settle(ctx.messages)
        try:
            response = await handler(request_context)
        except SkipModelRequest as skip:
            with unharmed("wrap_model_request"):
                run.answered(request_context, skip.response)
            raise
        except BaseException as error:
            with unharmed("wrap_model_request"):
                run.not_answered(error)
            raise
        with unharmed("wrap_model_request"):
            run.answered(request_context, response)
        return response

    async def wrap_tool_validate(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Record that a tool's arguments were refused."""
        try:
            return await handler(args)
        except _REFUSALS as error:
            with unharmed("wrap_tool_validate"):
                if self._run is not None:
                    refused = self._run.call(call)
                    refused.fail(_cause(error), Reason.INVALID_ARGUMENTS)
            raise

    async def wrap_tool_execute(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Record a tool call."""
        record: ToolCall | None = None
        with unharmed("wrap_tool_execute"):
            if self._run is not None:
                record = self._run.call(call)
        return await _recorded(record, handler, args)

    async def wrap_output_process(
        self, ctx: Any, *, output_context: Any, output: Any, handler: Any
    ) -> Any:
        """Record an output's function as a tool call."""
        record: ToolCall | None = None
        with unharmed("wrap_output_process"):
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


async def _recorded(call: ToolCall | None, handler: Any, given: Any) -> Any:
    """Return what a tool returns, and record it."""
    if call is None:
        return await handler(given)
    try:
        with call.as_current():
            with unharmed("tool call"):
                # Again, after somebody approved it: another attempt.
                call.start(call.attempt + call.has_started)
                await call.durable()
            result = await handler(given)
    except (ApprovalRequired, CallDeferred):
        raise  # it may be taken up again in this run
    except BaseException as error:
        with unharmed("tool call"):
            _end_call(call, error)
        raise
    with unharmed("tool call"):
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
    """Return what the tool raised, of which pydantic-ai made an answer for the model."""
    if isinstance(error, (ToolRetryError, ToolFailedError)):
        return error.__cause__ or error
    return error
