"""Record the runs of LangChain and LangGraph.

    langchain.install(tracing)
    await create_agent(model, tools, name="planner").ainvoke({"messages": [("user", "…")]})

A compiled graph is recorded as an agent. Its run is a root plan, or a sub-plan of the tool call
that invokes the graph. If a graph is a node of another graph, its run is a sub-plan only if the
graph has an agent's name (`create_agent(…, name=…)`). A chain without a parent becomes a plan when
a model, a tool or a graph runs in it. Nodes and other runnables are not recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers import context as langchain_context

from tracer.adapters.hooks import Uninstall, log_errors, parameters_of, read_prices, uninstall_all
from tracer.adapters.langchain.tree import (
    LangChainRun,
    RunTree,
    answer_in,
    answer_of,
    messages_in,
    recorded_messages,
    result_of,
)
from tracer.client import Tracing
from tracer.client.work import Plan, Step, ThinkAct, ToolCall, Work, add_work_finder, text_of
from tracer.records import Reason

_uninstall: Uninstall = uninstall_all([])


def install(tracing: Tracing) -> Uninstall:
    """Record all runs of this process with this connection. Replaces an earlier `install`.

    Code inside a run may also record by hand or with other adapters. These records then belong to
    the run.

    Args:
        tracing: The connection from `tracer.connect()`.

    Returns:
        A function that stops the recording. Open runs are recorded to their end.
    """
    global _uninstall
    _uninstall()
    handler = RecordingHandler(tracing)
    var: ContextVar[Any] = ContextVar("tracer_langchain_runs", default=handler)
    langchain_context.register_configure_hook(var, inheritable=True)

    def forget() -> None:
        hooks = langchain_context._configure_hooks
        hooks[:] = [each for each in hooks if each[0] is not var]

    _uninstall = uninstall_all([forget, add_work_finder(handler.current)])
    return _uninstall


class RecordingHandler(BaseCallbackHandler):
    """A callback handler that records runs: `config={"callbacks": [RecordingHandler(tracing)]}`.

    If a model, tool or node is cancelled, LangChain calls no hook for it. It only calls the hook of
    the graph or chain around it. This hook records all open runs inside the graph or chain as
    cancelled.
    """

    run_inline = True
    """Makes LangChain call the hooks in the event loop, in the order of the events."""

    def __init__(self, tracing: Tracing) -> None:
        """Create a handler.

        Args:
            tracing: The connection that records the runs.
        """
        self._tracing = tracing
        self._tree = RunTree(tracing)
        read_prices()

    @property
    def under_way(self) -> int:
        """The number of open LangChain runs."""
        return len(self._tree)

    def current(self) -> Work | None:
        """Return the innermost record that contains the calling code, such as a tool call.

        LangChain's own context identifies the LangChain run that is executing. If neither this run
        nor a run around it is recorded, return None.
        """
        # Does not take the lock: a caller that holds another lock could deadlock with a hook.
        with log_errors("langchain current"):
            return self._tree.current()
        return None

    @contextmanager
    def _hook(self, name: str) -> Iterator[None]:
        with log_errors(f"langchain {name}"), self._tree.lock:
            yield

    # --- Chains and graphs ---------------------------------------------------------------------

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **about: Any,
    ) -> None:
        """Note that a chain or graph started.

        The chain or graph is recorded as a plan later, if runs inside it show that it is an agent.
        """
        with self._hook("on_chain_start"):
            run = self._tree.begin(run_id, parent_run_id, serialized, about)
            run.inputs = inputs
            parent = run.parent
            if parent is not None and any(tag.startswith("graph:step:") for tag in run.tags):
                self._tree.note_graph(parent)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> None:
        """Record the end of a plan."""
        with self._hook("on_chain_end"):
            self._tree.end_answered(run_id, messages_in(outputs))
            run = self._tree.end(run_id)
            if run is None or not isinstance(run.work, Plan):
                return
            if run.is_interrupted:
                run.work.cancel(Reason.DEFERRED)
            else:
                run.work.finish(answer_in(outputs))

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """Record the failure of a plan."""
        with self._hook("on_chain_error"):
            run = self._tree.end(run_id)
            if run is None:
                return
            if run.parent is not None and "GraphInterrupt" in _names(error):
                run.parent.is_interrupted = True
            if run.work is not None:
                _end_with(run.work, error)

    # --- Models --------------------------------------------------------------------------------

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **about: Any,
    ) -> None:
        """Record a request to a chat model.

        If the request's messages answer earlier tool calls that never ran, end these calls.
        """
        with self._hook("on_chat_model_start"):
            run = self._tree.begin(run_id, parent_run_id, serialized, about)
            request_messages = messages[0] if messages else []
            self._start_thought(run, recorded_messages(request_messages), about)
            self._tree.end_answered(run_id, request_messages)

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **about: Any,
    ) -> None:
        """Record a request to a text completion model."""
        with self._hook("on_llm_start"):
            run = self._tree.begin(run_id, parent_run_id, serialized, about)
            self._start_thought(run, [{"role": "user", "content": each} for each in prompts], about)

    def _start_thought(self, run: LangChainRun, messages: list[Any], about: dict[str, Any]) -> None:
        params = about.get("invocation_params") or {}
        model = run.metadata.get("ls_model_name") or params.get("model") or params.get("model_name")
        run.is_structured = bool((about.get("options") or {}).get("ls_structured_output_format"))
        thought = self._tracing.think_act(
            messages,
            model=model,
            provider=text_of(run.metadata.get("ls_provider")),
            parameters=parameters_of(params),
            tools=params.get("tools") or params.get("functions"),
            node=text_of(run.metadata.get("langgraph_node")),
            within=self._tree.within(run),
        )
        thought.start()
        run.work = thought
        self._tree.watch(run, _current_task(), may_go_on=True)

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **about: Any) -> None:
        """Note when the first token of an answer arrives."""
        with self._hook("on_llm_new_token"):
            work = self._tree.work_of(run_id)
            if isinstance(work, ThinkAct):
                work.note_first_token()

    def on_llm_end(self, response: Any, *, run_id: UUID, **about: Any) -> None:
        """Record the model's answer and the tool calls that it chose, before any of them runs."""
        with self._hook("on_llm_end"):
            run = self._tree.end(run_id)
            if run is None or not isinstance(thought := run.work, ThinkAct):
                return
            answer = answer_of(response)
            text, chosen = answer.text, answer.calls
            if run.is_structured and chosen:
                # With structured output, the call is not a tool but the form of the answer.
                text, chosen = text or text_of(chosen[0].arguments), ()
            calls = thought.finish(
                text,
                model=answer.model,
                input_tokens=answer.usage[0],
                output_tokens=answer.usage[1],
                cost_usd=answer.cost(thought.model),
                finish_reasons=answer.finish_reason,
                cache_read_tokens=answer.cached[0] or None,
                cache_written_tokens=answer.cached[1] or None,
                reasoning_tokens=answer.reasoning or None,
                tool_calls=[*chosen, *(each for each, _ in answer.misformed)],
            )
            misformed = calls[len(chosen) :]
            for call, (_, problem) in zip(misformed, answer.misformed, strict=True):
                call.fail(problem, Reason.INVALID_ARGUMENTS)
            if not thought.step.plan.has_ended:
                choices = self._tree.choices(thought.step)
                choices.add(run.path, calls[: len(chosen)], answer.message_id)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """Record that a request to a model failed."""
        with self._hook("on_llm_error"):
            run = self._tree.end(run_id)
            if run is not None and run.work is not None:
                _end_with(run.work, error)

    # --- Tools ---------------------------------------------------------------------------------

    @property
    def on_tool_start(self) -> Callable[..., Any]:
        """Record that a tool starts, and wait until the event is durable.

        In an event loop, this is a coroutine function. LangChain awaits it, so that waiting does
        not block the loop.
        """
        if (task := _current_task()) is None:
            return self._start_tool_and_wait
        return partial(self._start_tool_and_await, task)

    def _start_tool_and_wait(self, *args: Any, **about: Any) -> None:
        with log_errors("langchain on_tool_start"):
            call = self._start_tool(None, *args, **about)
            if call is not None:
                call.wait()

    async def _start_tool_and_await(
        self, task: asyncio.Task[Any], *args: Any, **about: Any
    ) -> None:
        with log_errors("langchain on_tool_start"):
            call = self._start_tool(task, *args, **about)
            if call is not None:
                await call.durable()

    def _start_tool(
        self,
        task: asyncio.Task[Any] | None,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        tool_call_id: str | None = None,
        **about: Any,
    ) -> ToolCall | None:
        call = None
        with self._hook("on_tool_start"):
            run = self._tree.begin(run_id, parent_run_id, serialized, about)
            # The run may have its own name, but the call must have the tool's.
            name = str((serialized or {}).get("name") or run.name or "tool")
            arguments = input_str if inputs is None else text_of(inputs)
            run.work = call = self._call(run, name, arguments, tool_call_id or None)
            call.start(call.attempt)
            self._tree.watch(run, task)
        return call

    def _call(
        self, run: LangChainRun, name: str, arguments: str | None, call_id: str | None
    ) -> ToolCall:
        parent_work = self._tree.within(run)
        if parent_work is not None:
            holder = run.holder
            is_in_run = holder is not None and holder.work is parent_work
            containing_run = holder.run_id if holder and is_in_run else None
            choices = self._tree.choices(_step_of(parent_work))
            call = choices.take(name, arguments, call_id, run.path, run.retry_key, containing_run)
            if call is not None:
                return call
        return self._tracing.tool_call(
            name, arguments, provider_call_id=call_id, within=parent_work
        )

    def on_tool_end(self, output: Any, *, run_id: UUID, **about: Any) -> None:
        """Record a tool's result."""
        with self._hook("on_tool_end"):
            run = self._tree.end(run_id)
            if run is None or not isinstance(call := run.work, ToolCall):
                return
            result, is_error = result_of(output, call.provider_call_id)
            if is_error:
                call.result = text_of(result)
                self._fail(run, call, call.result or "")
            else:
                call.finish(result)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """Record that a tool failed."""
        with self._hook("on_tool_error"):
            run = self._tree.end(run_id)
            if run is None or not isinstance(call := run.work, ToolCall):
                return
            if isinstance(error, Exception) and "GraphBubbleUp" not in _names(error):
                self._fail(run, call, error)
            else:
                _end_with(call, error)

    def _fail(self, run: LangChainRun, call: ToolCall, error: Exception | str) -> None:
        does_not_fit = isinstance(error, Exception) and _is_of_arguments(error)
        call.fail(error, Reason.INVALID_ARGUMENTS if does_not_fit else None)
        if not call.step.plan.has_ended:
            self._tree.choices(call.step).failed(call, run.retry_key)

    # --- Retrievers ----------------------------------------------------------------------------

    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **about: Any,
    ) -> None:
        """Record a retrieval as a tool call of the type `RETRIEVER`."""
        with self._hook("on_retriever_start"):
            run = self._tree.begin(run_id, parent_run_id, serialized, about)
            run.work = self._tracing.tool_call(
                run.name or "retriever", query, tool_type="RETRIEVER", within=self._tree.within(run)
            )
            run.work.start()
            self._tree.watch(run, _current_task())

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **about: Any) -> None:
        """Record the documents that a retrieval found."""
        self.on_tool_end(documents, run_id=run_id)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """Record that a retrieval failed."""
        self.on_tool_error(error, run_id=run_id)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _step_of(work: Work) -> Step:
    match work:
        case Plan():
            return work.own_step
        case ThinkAct(step=step) | ToolCall(step=step) | (Step() as step):
            return step
        case _:
            raise TypeError(type(work).__name__)


def _names(error: BaseException) -> set[str]:
    """Return the names of an error's class and its base classes.

    The names identify LangGraph's errors even if LangGraph is not installed.
    """
    return {each.__name__ for each in type(error).__mro__}


def _end_with(work: Work, error: BaseException) -> None:
    names = _names(error)
    if "ParentCommand" in names and isinstance(work, (Plan, ToolCall)):
        work.finish()  # a hand-off to another agent of the graph that contains it
    elif "GraphBubbleUp" in names:
        work.cancel(Reason.DEFERRED)
    else:
        work.end_with(error)


def _is_of_arguments(error: Exception) -> bool:
    """Return whether an error was raised before the tool ran, while its arguments were parsed."""
    first = error.__traceback__ and error.__traceback__.tb_next
    return first is not None and first.tb_frame.f_code.co_name == "_to_args_and_kwargs"
