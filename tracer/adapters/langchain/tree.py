"""The tree of LangChain's open runs, each with its record (`Work`)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import var_child_runnable_config

from tracer.adapters.hooks import log_errors
from tracer.adapters.langchain.choices import Choices
from tracer.adapters.langchain.messages import request_in
from tracer.client.block import Work, current_work, innermost_of, text_of
from tracer.client.tracing import Tracing
from tracer.client.work import Plan, Step, ThinkAct

MAX_ENDED = 100
"""How many ended runs are kept. Their tasks or threads may still start further runs inside them."""

_SESSIONS = ("thread_id", "session_id", "conversation_id")


class LangChainRun:
    """A run of a chain, a graph, a model, a tool or a retriever."""

    def __init__(
        self, run_id: UUID, parent: LangChainRun | None, name: str | None, about: dict[str, Any]
    ) -> None:
        """Create a run.

        Args:
            run_id: LangChain's id of the run.
            parent: The run that contains it.
            name: LangChain's name of the run.
            about: The other arguments of LangChain's callback.
        """
        self.run_id = run_id
        self.parent = parent
        self.name = name
        self.metadata: dict[str, Any] = about.get("metadata") or {}
        self.tags: list[str] = about.get("tags") or []
        self.inputs: Any = None
        self.work: Work | None = None
        """The record of this run; None if the run is not recorded."""
        self.children: dict[UUID, LangChainRun] = {}
        self.task_runs: dict[UUID, bool] | None = None
        self.is_graph = self.is_interrupted = self.is_structured = False

    @property
    def path(self) -> tuple[UUID, ...]:
        """The ids of the runs that contain this run, the outermost first, and then its own id."""
        return (*(self.parent.path if self.parent else ()), self.run_id)

    @property
    def place(self) -> object:
        """A value that stays the same when a graph or a runnable retries this run."""
        return self.metadata.get("langgraph_checkpoint_ns") or (self.parent and self.parent.run_id)

    @property
    def holder(self) -> LangChainRun | None:
        """The innermost run that contains this run and has a record."""
        return self.parent and self.parent.recorded

    @property
    def recorded(self) -> LangChainRun | None:
        """The run itself if it has a record, otherwise its `holder`."""
        run: LangChainRun | None = self
        while run is not None and run.work is None:
            run = run.parent
        return run


class RunTree:
    """The open runs.

    A run is removed when it ends, or when a run that contains it ends. If a run of a tool or model
    has no parent and is cancelled, LangChain calls no hook. Such a run is removed when its asyncio
    task is done.
    """

    def __init__(self, tracing: Tracing) -> None:
        """Create an empty tree.

        Args:
            tracing: The connection that records the runs.
        """
        self.lock = threading.RLock()
        """A lock that callers must hold when they call any method except `current`."""
        self._tracing = tracing
        self._runs: dict[UUID, LangChainRun] = {}
        self._choices: dict[UUID, Choices] = {}
        self._ended: dict[UUID, LangChainRun] = {}
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], dict[UUID, bool]] = WeakKeyDictionary()
        _trees.add(self)

    def __len__(self) -> int:
        """Return the number of open runs."""
        return len(self._runs)

    def current(self) -> Work | None:
        """Return the innermost record that contains the calling code, such as a tool call.

        LangChain's own context identifies the LangChain run that is executing. If neither this run
        nor a run around it is recorded, return None.
        """
        callbacks = (var_child_runnable_config.get() or {}).get("callbacks")
        run_id = getattr(callbacks, "parent_run_id", None)
        run = self._find(run_id)
        recorded = run.recorded if run else None
        return recorded.work if recorded else None

    def begin(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        serialized: dict[str, Any] | None,
        about: dict[str, Any],
    ) -> LangChainRun:
        """Add a run and return it.

        Args:
            run_id: LangChain's id of the run.
            parent_run_id: LangChain's id of the run that contains it.
            serialized: LangChain's description of the object that runs.
            about: The other arguments of LangChain's callback.
        """
        parent = self._find(parent_run_id)
        name = about.get("name") or (serialized or {}).get("name")
        self._runs[run_id] = run = LangChainRun(run_id, parent, name, about)
        if parent is None:
            self._forget_choices()
        elif parent.run_id in self._runs:
            parent.children[run_id] = run
        return run

    def watch(
        self, run: LangChainRun, task: asyncio.Task[Any] | None, may_go_on: bool = False
    ) -> None:
        """Watch the asyncio task of a run without a parent.

        If the run is still open when the task is done, the run is recorded as cancelled.

        Args:
            run: The run.
            task: The asyncio task in which the run began; None if the run began outside a task.
            may_go_on: Whether the run may continue in another task, as a stream may. If so, the run
                is recorded as cancelled only if the task fails or is cancelled.
        """
        if task is None or (run.parent is not None and run.parent.run_id in self._runs):
            return
        if task not in self._tasks:
            self._tasks[task] = {}
            task.add_done_callback(self._task_done)
        run.task_runs = self._tasks[task]
        run.task_runs[run.run_id] = may_go_on

    def end(self, run_id: UUID) -> LangChainRun | None:
        """Remove a run and return it; None if it is unknown.

        Open runs inside it are recorded as cancelled. If a graph is cancelled, LangChain calls a
        hook only for the graph, not for the tools, models and nodes inside the graph.
        """
        run = self._runs.pop(run_id, None)
        if run is None:
            return None
        if run.parent is not None:
            run.parent.children.pop(run_id, None)
        if run.task_runs is not None:
            run.task_runs.pop(run_id, None)
        for child in [*run.children.values()]:
            self._cancel(child.run_id)
        if isinstance(run.work, Plan):
            self._choices.pop(run.work.own_step.step_id, None)
        run.inputs = None
        if not isinstance(run.work, ThinkAct):
            self._ended[run_id] = run
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        return run

    def within(self, run: LangChainRun) -> Work | None:
        """Return the innermost record that contains a run.

        If no record contains the run, but a chain does, the outermost chain becomes a plan. If
        nothing contains the run, return None.
        """
        holder = run.holder
        parent_work = innermost_of(holder.work if holder else None, current_work(self._tracing))
        if parent_work is None and run.parent is not None:
            top = run.parent
            while top.parent is not None:
                top = top.parent
            return self.start_plan(top)
        return parent_work

    def start_plan(self, run: LangChainRun) -> Plan:
        """Start a plan for a run and return it."""
        data = run.metadata
        session_id = next((str(data[each]) for each in _SESSIONS if data.get(each)), None)
        plan = self._tracing.plan(
            request=request_in(run.inputs),
            agent=run.name,
            session_id=session_id,
            subject=text_of(data.get("user_id")),
            tags=run.tags if run.parent is None else (),
            metadata=_own_metadata(data),
            within=self.within(run),
        )
        plan.start()
        _ = plan.own_step  # an agent is a plan of one step, even if it does nothing
        run.work = plan
        return plan

    def work_of(self, run_id: UUID) -> Work | None:
        """Return the record of an open run; None if the run is not open or has no record."""
        run = self._runs.get(run_id)
        return None if run is None else run.work

    def note_graph(self, run: LangChainRun) -> None:
        """Note that a run is a graph, and start a plan for the graph.

        A graph that is a node of another graph gets a plan only if it has an agent's name.
        """
        if run.is_graph:
            return
        run.is_graph = True
        holder = run.holder
        is_part = holder is not None and holder.is_graph
        if run.work is None and (not is_part or run.metadata.get("lc_agent_name") == run.name):
            self.start_plan(run)

    def choices(self, step: Step) -> Choices:
        """Return the calls that models chose in a step."""
        return self._choices.setdefault(step.step_id, Choices(step))

    def end_answered(self, run_id: UUID, messages: list[BaseMessage]) -> None:
        """End the calls that the agent answered without running a tool.

        Args:
            run_id: The id of the run with the messages: a model's run that receives them, or a
                graph's run that ends with them.
            messages: The messages, which contain the agent's answers to the calls.
        """
        run = self._runs.get(run_id)
        if run is not None and isinstance(run.work, (Plan, ThinkAct)):
            step = run.work.own_step if isinstance(run.work, Plan) else run.work.step
            self.choices(step).end_answered(messages)

    def _forget_choices(self) -> None:
        """Remove the chosen calls of plans that have ended and were not recorded by this adapter.

        LangChain calls no hook when such a plan ends.
        """
        for step_id, choices in [*self._choices.items()]:
            if choices.step.plan.has_ended:
                del self._choices[step_id]

    def _find(self, run_id: UUID | None) -> LangChainRun | None:
        if run_id is None:
            return None
        return self._runs.get(run_id) or self._ended.get(run_id)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        with log_errors("langchain task"), self.lock:
            went_well = not task.cancelled() and task.exception() is None
            for run_id, may_go_on in [*self._tasks.pop(task, {}).items()]:
                if not (may_go_on and went_well):
                    self._cancel(run_id)

    def _cancel(self, run_id: UUID) -> None:
        run = self.end(run_id)
        if run is not None and run.work is not None:
            run.work.cancel()


_trees: WeakSet[RunTree] = WeakSet()


_OF_FRAMEWORK = ("ls_", "lc_", "langgraph_", "checkpoint_", "__")


def _own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a run without the entries that LangChain and LangGraph add."""
    return {
        name: value
        for name, value in metadata.items()
        if not name.startswith(_OF_FRAMEWORK) and name not in _ELSEWHERE
    }


_ELSEWHERE = (*_SESSIONS, "user_id")
"""Metadata that is recorded as the session or the subject of the run."""


def _unlock_all() -> None:
    for tree in list(_trees):
        tree.lock = threading.RLock()


# Another thread may hold the lock during a fork, and does not exist in the forked process.
os.register_at_fork(after_in_child=_unlock_all)
