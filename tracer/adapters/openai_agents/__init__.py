"""Record the runs of the OpenAI Agents SDK's `Runner`.

    openai_agents.install(tracer.connect())

Each run of the SDK is recorded as a plan with one step. A hand-off is a sub-plan that the step
opened. An agent that is used as a tool is a sub-plan of the tool call.

The adapter uses the SDK's run hooks, because they receive a call's id and the SDK awaits them. It
does not use the SDK's tracing, because the user may have turned it off. The adapter also wraps the
SDK's internal function for one tool call. The wrapper makes the call the current work while its
tool runs, and records how the call ends. The adapter keeps no state of ended runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from tracer.client import Tracing
from tracer.client.work import ToolCall, current_work
from tracer.errors import ToolError, missing_extra

try:
    import agents
    from agents import RunHooks, Tool
    from agents import run as running
    from agents import tool as tools
    from agents.exceptions import ToolTimeoutError
    from agents.mcp.util import MCPUtil
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
    from agents.models.openai_responses import OpenAIResponsesModel
    from agents.run_internal import run_loop, tool_execution

    from tracer.adapters.hooks import (
        Uninstall,
        current_while,
        log_errors,
        read_prices,
        uninstall_all,
        wrap,
    )
except ImportError as error:
    raise missing_extra(__name__, "openai-agents", error) from error

from tracer.adapters.openai_agents.run import OpenAIRun, agent_run, finish_reason_of

_RUN: ContextVar[OpenAIRun | None] = ContextVar("tracer-openai-agents-run", default=None)
_uninstall: Uninstall = uninstall_all([])
_ANSWER_TO_ERROR = "maybe_invoke_function_tool_failure_error_function"


def install(tracing: Tracing) -> Uninstall:
    """Record all runs of this process with this connection. Replaces an earlier `install`.

    Args:
        tracing: The connection from `tracer.connect()`.

    Returns:
        A function that stops the recording.
    """
    global _uninstall
    _uninstall()
    read_prices()

    async def around_run(
        wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record one run. Wraps the SDK's `AgentRunner._run_impl` and `start_streaming`."""
        run = None
        with log_errors("run"):
            run = agent_run(tracing, args, kwargs)
        if run is None:
            return await wrapped(*args, **kwargs)
        user_hooks = kwargs.get("hooks")
        if user_hooks is None or isinstance(user_hooks, agents.lifecycle.RunHooksBase):
            kwargs = {**kwargs, "hooks": _Hooks(run, user_hooks)}
        with _current(run):
            try:
                result = await wrapped(*args, **kwargs)
            except BaseException as error:
                with log_errors("run_failed"):
                    run.fail(error)
                raise
        with log_errors("run_finished"):
            run.finish(kwargs.get("streamed_result") or result)
        return result

    _uninstall = uninstall_all(
        [
            wrap(running.AgentRunner, "_run_impl", around_run),
            wrap(running, "start_streaming", around_run),
            wrap(run_loop, "get_model", _note_model),
            wrap(OpenAIChatCompletionsModel, "_fetch_response", _note_finish_reason),
            wrap(OpenAIResponsesModel, "_fetch_response", _note_finish_reason),
            wrap(tool_execution._FunctionToolBatchExecutor, "_run_single_tool", _around_tool),
            wrap(tools, _ANSWER_TO_ERROR, _note_error),
            wrap(tool_execution, _ANSWER_TO_ERROR, _note_error),
            wrap(ToolTimeoutError, "__init__", _note_timeout),
            wrap(MCPUtil, "_extract_custom_data", _note_mcp_error),
            wrap(agents.InputGuardrail, "run", _around_guardrail),
            wrap(agents.OutputGuardrail, "run", _around_guardrail),
            wrap(agents.ToolInputGuardrail, "run", _around_guardrail),
            wrap(agents.ToolOutputGuardrail, "run", _around_guardrail),
        ]
    )
    return _uninstall


@contextmanager
def _current(run: OpenAIRun) -> Iterator[None]:
    token = _RUN.set(run)
    try:
        with run.plans[0].as_current():
            yield
    finally:
        _RUN.reset(token)


class _Hooks(RunHooks[Any]):
    """Run hooks for the SDK. Each hook records its event, and then calls the user's hook."""

    def __init__(self, run: OpenAIRun, user_hooks: RunHooks[Any] | None) -> None:
        self.run = run
        self._user_hooks = user_hooks or RunHooks[Any]()

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        await self._user_hooks.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        await self._user_hooks.on_agent_end(context, agent, output)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        with log_errors("on_handoff"):
            self.run.hand_over(to_agent)
        await self._user_hooks.on_handoff(context, from_agent, to_agent)

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]
    ) -> None:
        with log_errors("on_llm_start"):
            self.run.ask(agent, system_prompt, input_items)
        await self._user_hooks.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        with log_errors("on_llm_end"):
            await self.run.answer(agent, response).durable()
        await self._user_hooks.on_llm_end(context, agent, response)

    async def on_tool_start(self, context: Any, agent: Any, tool: Tool) -> None:
        with log_errors("on_tool_start"):
            call = self._current_call() or self.run.claim_local(context, tool)
            self.run.start(call, tool)
            await call.durable()
        await self._user_hooks.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Tool, result: Any) -> None:
        with log_errors("on_tool_end"):
            if self._current_call() is None:
                self.run.end_local(context, tool, result)
        await self._user_hooks.on_tool_end(context, agent, tool, result)

    def _current_call(self) -> ToolCall | None:
        """Return the call that is running; None for OpenAI's own tools.

        Their calls do not pass through `_around_tool`, which makes a call the current work.
        """
        work = current_work(self.run.tracing)
        is_ours = isinstance(work, ToolCall) and work.step.plan in self.run.plans
        return work if is_ours and isinstance(work, ToolCall) else None


def _note_model(wrapped: Any, _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Note the object of the model that a run will call, because the hooks do not receive it."""
    model = wrapped(*args, **kwargs)
    if (run := _RUN.get()) is not None:
        run.model = model
    return model


async def _note_finish_reason(wrapped: Any, _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Note a model's finish reason, because the SDK discards it.

    For a streamed response, no reason is noted, because the stream has not been read yet.
    """
    response = await wrapped(*args, **kwargs)
    with log_errors("finish_reason"):
        if (run := _RUN.get()) is not None:
            run.finish_reason = finish_reason_of(response)
    return response


async def _around_tool(
    wrapped: Any, executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a call the current work while its tool runs, and record how the call ends."""
    run = call = None
    with log_errors("tool"):
        if isinstance(executor.hooks, _Hooks):
            run = executor.hooks.run
            call = run.claim(kwargs["tool_call"])
    if run is None or call is None:
        return await wrapped(*args, **kwargs)
    with current_while(call, "tool_failed", partial(run.end_with, call)):
        result = await wrapped(*args, **kwargs)
    with log_errors("tool_finished"):
        run.end(call, result)
    return result


def _note(error: BaseException) -> None:
    """Keep a tool's error, because the SDK then converts it to a text for the model."""
    run = _RUN.get()
    work = run and current_work(run.tracing)
    if run is not None and isinstance(work, ToolCall):
        run.errors.setdefault(work, error)


async def _note_error(wrapped: Any, _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    with log_errors("tool_error"):
        _note(kwargs["error"])
    return await wrapped(*args, **kwargs)


def _note_timeout(wrapped: Any, error: BaseException, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    with log_errors("tool_timeout"):
        _note(error)


async def _note_mcp_error(wrapped: Any, _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    with log_errors("mcp_error"):
        result = kwargs.get("result")
        if getattr(result, "isError", False) or getattr(result, "is_error", False):
            _note(ToolError("The MCP server returned an error."))
    return await wrapped(*args, **kwargs)


async def _around_guardrail(wrapped: Any, guardrail: Any, args: Any, kwargs: Any) -> Any:
    """Record a guardrail as a tool call of the type `GUARDRAIL`.

    If the guardrail trips, the call is still recorded as succeeded.
    """
    run, call = _RUN.get(), None
    if run is not None:
        with log_errors("guardrail"):
            work = current_work(run.tracing)
            parent_work = work if isinstance(work, ToolCall) else run.step
            call = run.tracing.tool_call(
                guardrail.get_name(), tool_type="GUARDRAIL", within=parent_work
            )
            call.start()
    if run is None or call is None:
        return await wrapped(*args, **kwargs)
    with current_while(call, "guardrail_failed", partial(run.end_for, call)):
        result = await wrapped(*args, **kwargs)
    with log_errors("guardrail_finished"):
        # An agent's guardrail wraps its output in a result object, a tool's guardrail does not.
        call.finish(run.unless_sensitive(getattr(result, "output", result)))
    return result
