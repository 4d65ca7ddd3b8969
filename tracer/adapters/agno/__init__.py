"""Agno: every run of its agents and teams, as it happens.

    agno.install(tracer.connect())

A run is a plan with one step, and a sub-plan of the tool call that it was started in: a team's
member, of the call that delegates to it. A round's calls are Agno's own objects for them, from the
model's answer to the tool, so that no id is needed to tell which is which. Agno makes results of
errors and swallows them, so it goes by its own functions: for one run, one answer, one call.
Nothing is kept of a run that has ended; one that its reader leaves ends with its generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from inspect import isasyncgen, isgenerator, signature
from typing import Any

from tracer.adapters.hooks import (
    TakeBack,
    all_of,
    async_items_within,
    current_while,
    items_within,
    read_prices,
    unharmed,
    wrap,
)
from tracer.client.block import Work, current_work
from tracer.client.tracing import Tracing
from tracer.client.work import Plan, ThinkAct, ToolCall

try:
    from agno.agent import _run as agent_runs
    from agno.models import base as models
    from agno.team import _run as team_runs
    from agno.tools import function as functions
except ImportError as error:
    raise ImportError("Agno is not installed: pip install 'tracer-lineage[agno]'") from error

from tracer.adapters.agno.run import AgentRun, agent_run

_take_back: TakeBack = all_of([])
_runs: dict[Plan, AgentRun] = {}
"""The runs that have not ended, by their plans: those travel where context variables do not."""


def install(tracing: Tracing) -> TakeBack:
    """Record every run of this process from now on, on this connection alone.

    Args:
        tracing: What `tracer.connect()` returns.

    Returns:
        What takes it back.
    """
    global _take_back
    _take_back()
    read_prices()
    model, call = models.Model, functions.FunctionCall
    _take_back = all_of(
        [
            *(
                wrap(module, prefix + name, partial(around, tracing))
                for module in (agent_runs, team_runs)
                for prefix, stream, around in (
                    ("_", "", _around_run),
                    ("_a", "", _around_async_run),
                    ("_", "_stream", _around_stream),
                    ("_a", "_stream", _around_async_stream),
                )
                for name in ("run" + stream, "continue_run" + stream)
            ),
            wrap(model, "_process_model_response", _around_answer),
            wrap(model, "_aprocess_model_response", _around_async_answer),
            wrap(model, "process_response_stream", _around_answer_stream),
            wrap(model, "aprocess_response_stream", _around_async_answer_stream),
            wrap(models, "get_function_call_for_tool_call", _note_tool),
            wrap(model, "create_tool_call_limit_error_result", _note_limit),
            wrap(model, "create_function_call_result", _note_result),
            wrap(call, "execute", _around_call),
            wrap(call, "aexecute", _around_async_call),
            wrap(functions, "log_exception", _note_error),
        ]
    )
    return _take_back


def open_plans() -> list[Plan]:
    """Return the plans of the runs that have not ended."""
    return list(_runs)


def _current_run() -> AgentRun | None:
    work: Work | None = current_work()
    plan = work if isinstance(work, Plan) else getattr(getattr(work, "step", work), "plan", None)
    return _runs.get(plan) if isinstance(plan, Plan) else None


def _given(wrapped: Any, args: Any, kwargs: Any) -> Mapping[str, Any]:
    return signature(wrapped).bind(*args, **kwargs).arguments


def _wait(work: Work) -> None:
    """Wait until a record is durable, where that holds up no event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        work.wait()


# --- Runs --------------------------------------------------------------------------------------


def _begin(tracing: Tracing, wrapped: Any, args: Any, kwargs: Any) -> AgentRun | None:
    run = None
    with unharmed("run"):
        run = agent_run(tracing, _given(wrapped, args, kwargs))
        _runs[run.plan] = run
    return run


def _end(run: AgentRun, end: Callable[[], None]) -> None:
    _runs.pop(run.plan, None)
    with unharmed("run_ended"):
        end()


def _fail(run: AgentRun, error: BaseException) -> None:
    """Record that an exception ended a run, and with it, if it cancels, those of its members.

    Agno leaves members running whose team was cancelled, and tells nobody when they end.
    """
    _end(run, partial(run.fail, error))
    if isinstance(error, Exception):
        return
    for below in [each for each in list(_runs.values()) if _is_below(each.plan, run.plan)]:
        _end(below, partial(below.fail, error))


def _is_below(plan: Plan, parent_work: Plan) -> bool:
    work: Work | None = plan.parent_work
    while work is not None and work is not parent_work:
        work = work.parent_work
    return work is not None


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
            with unharmed("run_event"):
                run.see(item)
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
                with unharmed("run_event"):
                    run.see(item)
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


class _Round:
    """One answer of a model, around the code that asks for it."""

    def __init__(self, wrapped: Any, model: Any, args: Any, kwargs: Any) -> None:
        """Record that the model is asked, where that happens in a run."""
        self._model = model
        self._thought: ThinkAct | None = None
        self._run = _current_run()
        if self._run is not None:
            with unharmed("answer"):
                given = _given(wrapped, args, kwargs)
                self._message = given["assistant_message"]
                self._thought = self._run.ask(model, given["messages"], given.get("tools"))

    def __enter__(self) -> _Round:
        return self

    def __exit__(self, error_type: Any, error: BaseException | None, trace: Any) -> None:
        if self._run is None or self._thought is None:
            return
        with unharmed("answer_ended"):
            if error is None:
                self._run.answer(self._thought, self._model, self._message)
            else:
                self._run.fail_thought(self._thought, error)

    def wait(self) -> None:
        """Wait until the answer is durable, and with it the calls."""
        if self._thought is not None:
            _wait(self._thought)

    async def durable(self) -> None:
        """Wait until the answer is durable, and with it the calls."""
        if self._thought is not None:
            await self._thought.durable()


def _around_answer(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    with _Round(wrapped, model, args, kwargs) as round:
        result = wrapped(*args, **kwargs)
    round.wait()
    return result


async def _around_async_answer(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    with _Round(wrapped, model, args, kwargs) as round:
        result = await wrapped(*args, **kwargs)
    await round.durable()
    return result


def _around_answer_stream(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    with _Round(wrapped, model, args, kwargs) as round:
        yield from wrapped(*args, **kwargs)
    round.wait()


async def _around_async_answer_stream(
    wrapped: Any, model: Any, args: Any, kwargs: Any
) -> AsyncIterator[Any]:
    items = wrapped(*args, **kwargs)
    with _Round(wrapped, model, args, kwargs) as round:
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()
    await round.durable()


# --- Calls -------------------------------------------------------------------------------------


def _note_tool(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    found = wrapped(*args, **kwargs)
    if (run := _current_run()) is not None:
        with unharmed("tool_found"):
            run.look_up(_given(wrapped, args, kwargs)["tool_call"], found)
    return found


def _note_limit(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if (run := _current_run()) is not None:
        with unharmed("tool_limit"):
            run.refuse(_given(wrapped, args, kwargs)["function_call"])
    return wrapped(*args, **kwargs)


def _note_result(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if (run := _current_run()) is not None:
        with unharmed("tool_result"):
            given = _given(wrapped, args, kwargs)
            run.end_generator(given["function_call"], given["success"], given.get("output"))
    return wrapped(*args, **kwargs)


def _note_error(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    """Agno logs the error itself, and goes on with its words."""
    run, work = _current_run(), current_work()
    if run is not None and isinstance(work, ToolCall) and args:
        with unharmed("tool_error"):
            if isinstance(args[0], BaseException):
                run.note(work, args[0])
    return wrapped(*args, **kwargs)


def _start(function_call: Any) -> tuple[AgentRun, ToolCall] | None:
    run, call = _current_run(), None
    if run is not None:
        with unharmed("tool"):
            call = run.start(function_call)
    return (run, call) if run is not None and call is not None else None


def _ended(run: AgentRun, call: ToolCall, function_call: Any, outcome: Any) -> Any:
    """Record what a tool returned; what is read bit by bit ends when it has been read."""
    with unharmed("tool_ended"):
        result = outcome.result
        failed = partial(run.note, call)
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
