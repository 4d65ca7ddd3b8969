"""Record the runs of Agno's agents and teams.

    agno.install(tracer.connect())

Each Agno run is recorded as a plan with one step. A run inside a tool call is a sub-plan of that
call. The run of a team's member is a sub-plan of the call that delegates to the member.

When a tool runs, the adapter finds the call in the model's answer by the identity of Agno's
objects. It cannot use the providers' call ids for this, because they are not unique.

Agno converts exceptions to results. So the adapter wraps Agno's internal functions that execute a
run, a model request or a tool call, because these functions still see the exceptions. The adapter
keeps no state of ended runs. If the reader of a streamed run stops reading, the run ends when its
generator is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from inspect import isasyncgen, isgenerator, signature
from typing import Any

from tracer.client import Tracing
from tracer.client.work import Plan, ThinkAct, ToolCall, Work, current_work
from tracer.context import in_context
from tracer.errors import missing_extra

try:
    import wrapt
    from agno.agent import _managers as agent_managers
    from agno.agent import _run as agent_runs
    from agno.models import base as models
    from agno.team import _managers as team_managers
    from agno.team import _run as team_runs
    from agno.tools import function as functions

    from tracer.adapters.hooks import (
        Uninstall,
        async_items_within,
        current_while,
        items_within,
        log_errors,
        read_prices,
        uninstall_all,
        wrap,
    )
except ImportError as error:
    raise missing_extra(__name__, "agno", error) from error

try:
    from agno.models.openai.chat import OpenAIChat
except ImportError:  # Agno is installed without OpenAI's package
    _OPENAI_HOOKS: tuple[tuple[type, str], ...] = ()
else:
    _OPENAI_HOOKS = (
        (OpenAIChat, "_parse_provider_response"),
        (OpenAIChat, "_parse_provider_response_delta"),
    )

from tracer.adapters.agno.run import AgnoRun, agent_run

_uninstall: Uninstall = uninstall_all([])
_runs: dict[Plan, AgnoRun] = {}
"""The open runs, by plan. Hooks find the current run by the plan that `current_work` returns. This
also works in threads that Agno starts, where a context variable of this adapter would be unset."""


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
    model, call = models.Model, functions.FunctionCall
    _uninstall = uninstall_all(
        [
            *(
                wrap(module, prefix + name, partial(wrapper, tracing))
                for module in (agent_runs, team_runs)
                for prefix, stream, wrapper in (
                    ("_", "", _around_run),
                    ("_a", "", _around_async_run),
                    ("_", "_stream", _around_stream),
                    ("_a", "_stream", _around_async_stream),
                )
                for name in ("run" + stream, "continue_run" + stream)
            ),
            *(
                wrap(module, f"{prefix}start_{purpose}_future", _in_context)
                for module, prefix in ((agent_managers, ""), (team_managers, "_"))
                for purpose in ("memory", "learning")
            ),
            wrap(model, "_process_model_response", _around_answer),
            wrap(model, "_aprocess_model_response", _around_async_answer),
            wrap(model, "process_response_stream", _around_answer_stream),
            wrap(model, "aprocess_response_stream", _around_async_answer_stream),
            *(wrap(openai, name, _note_finish_reason) for openai, name in _OPENAI_HOOKS),
            wrap(models, "get_function_call_for_tool_call", _note_tool),
            wrap(model, "create_tool_call_limit_error_result", _note_limit),
            wrap(model, "create_function_call_result", _note_result),
            wrap(call, "execute", _around_call),
            wrap(call, "aexecute", _around_async_call),
            wrap(functions, "log_exception", _note_error),
        ]
    )
    return _uninstall


def open_plans() -> list[Plan]:
    """Return the plans of the runs that have not ended."""
    return list(_runs)


def _current_run() -> AgnoRun | None:
    work: Work | None = current_work()
    plan = work if isinstance(work, Plan) else getattr(getattr(work, "step", work), "plan", None)
    return _runs.get(plan) if isinstance(plan, Plan) else None


def _bound_arguments(wrapped: Any, args: Any, kwargs: Any) -> Mapping[str, Any]:
    return signature(wrapped).bind(*args, **kwargs).arguments


def _wait(work: Work) -> None:
    """Wait until a record is in the store, or in the spool on disk.

    In a thread that runs an event loop, return at once, because the loop must not be blocked.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        work.wait()


# --- Runs --------------------------------------------------------------------------------------


def _begin(tracing: Tracing, wrapped: Any, args: Any, kwargs: Any) -> AgnoRun | None:
    run = None
    with log_errors("run"):
        run = agent_run(tracing, _bound_arguments(wrapped, args, kwargs))
        _runs[run.plan] = run
    return run


def _end(run: AgnoRun, end: Callable[[], None]) -> None:
    _runs.pop(run.plan, None)
    with log_errors("run_ended"):
        end()


def _fail(run: AgnoRun, error: BaseException) -> None:
    """Record that an exception ended a run. If a team is cancelled, end its members' runs, too.

    Agno keeps members running after their team was cancelled, and calls no hook when they end.
    """
    _end(run, partial(run.fail, error))
    if isinstance(error, Exception):
        return
    for member_run in [each for each in list(_runs.values()) if _is_below(each.plan, run.plan)]:
        _end(member_run, partial(member_run.fail, error))


def _is_below(plan: Plan, ancestor: Plan) -> bool:
    work: Work | None = plan.parent_work
    while work is not None and work is not ancestor:
        work = work.parent_work
    return work is not None


class _InContext(wrapt.ObjectProxy[Any]):
    """An agent or team whose background threads run in the context of the code that uses them."""

    @property
    def background_executor(self) -> _InContext:
        return _InContext(self.__wrapped__.background_executor)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__.submit(in_context(function), *args, **kwargs)


def _in_context(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    """Let the threads that update memories and learnings record in the run that starts them."""
    agent, *rest = args
    return wrapped(_InContext(agent), *rest, **kwargs)


def _around_run(tracing: Tracing, wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    run = _begin(tracing, wrapped, args, kwargs)
    if run is None:
        return wrapped(*args, **kwargs)
    with run.plan.as_current():
        try:
            output = wrapped(*args, **kwargs)
        except BaseException as error:
            _fail(run, error)
            raise
    _end(run, partial(run.finish, output))
    return output


async def _around_async_run(tracing: Tracing, wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    run = _begin(tracing, wrapped, args, kwargs)
    if run is None:
        return await wrapped(*args, **kwargs)
    with run.plan.as_current():
        try:
            output = await wrapped(*args, **kwargs)
        except BaseException as error:
            _fail(run, error)
            raise
    _end(run, partial(run.finish, output))
    return output


def _around_stream(tracing: Tracing, wrapped: Any, _: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    run = _begin(tracing, wrapped, args, kwargs)
    if run is None:
        yield from wrapped(*args, **kwargs)
        return
    try:
        for item in items_within(run.plan, wrapped(*args, **kwargs)):
            with log_errors("run_event"):
                run.note_stream_item(item)
            yield item
    except BaseException as error:
        _fail(run, error)
        raise
    _end(run, run.finish)


async def _around_async_stream(
    tracing: Tracing, wrapped: Any, _: Any, args: Any, kwargs: Any
) -> AsyncIterator[Any]:
    run = _begin(tracing, wrapped, args, kwargs)
    items = wrapped(*args, **kwargs)
    if run is not None:
        items = async_items_within(run.plan, items)
    try:
        async for item in items:
            if run is not None:
                with log_errors("run_event"):
                    run.note_stream_item(item)
            yield item
    except BaseException as error:
        if run is not None:
            _fail(run, error)
        raise
    finally:
        await items.aclose()
    if run is not None:
        _end(run, run.finish)


# --- Answers -----------------------------------------------------------------------------------


class _RoundRecorder:
    """A context manager that records one request to a model as a round."""

    def __init__(self, wrapped: Any, model: Any, args: Any, kwargs: Any) -> None:
        """If a recorded run is open, record the start of the request."""
        self._model = model
        self._thought: ThinkAct | None = None
        self._run = _current_run()
        if self._run is not None:
            with log_errors("answer"):
                arguments = _bound_arguments(wrapped, args, kwargs)
                self._message = arguments["assistant_message"]
                self._thought = self._run.ask(model, arguments["messages"], arguments.get("tools"))

    def __enter__(self) -> _RoundRecorder:
        return self

    def __exit__(self, error_type: Any, error: BaseException | None, trace: Any) -> None:
        if self._run is None or self._thought is None:
            return
        with log_errors("answer_ended"):
            if error is None:
                self._run.answer(self._thought, self._model, self._message)
            else:
                self._run.fail_thought(self._thought, error)

    def note_first_token(self) -> None:
        """Record the time of the answer's first token. Only the first call has an effect."""
        if self._thought is not None:
            with log_errors("first_token"):
                self._thought.note_first_token()

    def wait(self) -> None:
        """Wait until the recorded answer and its tool calls are in the store, or in the spool."""
        if self._thought is not None:
            _wait(self._thought)

    async def durable(self) -> None:
        """Wait until the recorded answer and its tool calls are in the store, or in the spool."""
        if self._thought is not None:
            await self._thought.durable()


def _around_answer(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    with _RoundRecorder(wrapped, model, args, kwargs) as round:
        result = wrapped(*args, **kwargs)
    round.wait()
    return result


async def _around_async_answer(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    with _RoundRecorder(wrapped, model, args, kwargs) as round:
        result = await wrapped(*args, **kwargs)
    await round.durable()
    return result


def _around_answer_stream(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    with _RoundRecorder(wrapped, model, args, kwargs) as round:
        for item in wrapped(*args, **kwargs):
            round.note_first_token()
            yield item
    round.wait()


async def _around_async_answer_stream(
    wrapped: Any, model: Any, args: Any, kwargs: Any
) -> AsyncIterator[Any]:
    items = wrapped(*args, **kwargs)
    with _RoundRecorder(wrapped, model, args, kwargs) as round:
        try:
            async for item in items:
                round.note_first_token()
                yield item
        finally:
            await items.aclose()
    await round.durable()


def _note_finish_reason(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    """Note the finish reason in a response of OpenAI's API, because Agno discards it."""
    if (run := _current_run()) is not None:
        with log_errors("finish_reason"):
            response = next(iter(_bound_arguments(wrapped, args, kwargs).values()))
            run.note_finish_reason(response.choices)
    return wrapped(*args, **kwargs)


# --- Calls -------------------------------------------------------------------------------------


def _note_tool(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    function_call = wrapped(*args, **kwargs)
    if (run := _current_run()) is not None:
        with log_errors("tool_found"):
            run.note_tool(_bound_arguments(wrapped, args, kwargs)["tool_call"], function_call)
    return function_call


def _note_limit(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if (run := _current_run()) is not None:
        with log_errors("tool_limit"):
            run.reject_over_limit(_bound_arguments(wrapped, args, kwargs)["function_call"])
    return wrapped(*args, **kwargs)


def _note_result(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if (run := _current_run()) is not None:
        with log_errors("tool_result"):
            arguments = _bound_arguments(wrapped, args, kwargs)
            run.end_generator(
                arguments["function_call"], arguments["success"], arguments.get("output")
            )
    return wrapped(*args, **kwargs)


def _note_error(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    """Note a tool's exception when Agno logs it, because Agno then keeps only its message."""
    run, work = _current_run(), current_work()
    if run is not None and isinstance(work, ToolCall) and args:
        with log_errors("tool_error"):
            if isinstance(args[0], BaseException):
                run.note_error(work, args[0])
    return wrapped(*args, **kwargs)


def _start(function_call: Any) -> tuple[AgnoRun, ToolCall] | None:
    run, call = _current_run(), None
    if run is not None:
        with log_errors("tool"):
            call = run.start(function_call)
    return (run, call) if run is not None and call is not None else None


def _ended(run: AgnoRun, call: ToolCall, function_call: Any, outcome: Any) -> Any:
    """Record a tool's result.

    If the tool is a generator, the call ends when all items have been read.
    """
    with log_errors("tool_ended"):
        result = outcome.result
        failed = partial(run.note_error, call)
        if outcome.status == "success" and isgenerator(result):
            outcome.result = items_within(call, result, failed)
        elif outcome.status == "success" and isasyncgen(result):
            outcome.result = async_items_within(call, result, failed)
        else:
            run.end(function_call, call, outcome)
        if function_call.result is result:
            function_call.result = outcome.result
    return outcome


def _around_call(wrapped: Any, function_call: Any, args: Any, kwargs: Any) -> Any:
    started = _start(function_call)
    if started is None:
        return wrapped(*args, **kwargs)
    run, call = started
    _wait(call)
    with current_while(call, "tool_failed", partial(run.end_with, function_call, call)):
        outcome = wrapped(*args, **kwargs)
    return _ended(run, call, function_call, outcome)


async def _around_async_call(wrapped: Any, function_call: Any, args: Any, kwargs: Any) -> Any:
    started = _start(function_call)
    if started is None:
        return await wrapped(*args, **kwargs)
    run, call = started
    await call.durable()
    with current_while(call, "tool_failed", partial(run.end_with, function_call, call)):
        outcome = await wrapped(*args, **kwargs)
    return _ended(run, call, function_call, outcome)
