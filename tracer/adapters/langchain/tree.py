"""LangChain's runs that have not ended, and what of them is recorded where."""

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

from tracer.adapters.hooks import unharmed
from tracer.adapters.langchain.choices import Choices
from tracer.adapters.langchain.messages import request_in
from tracer.client.block import Work, current_work, innermost_of, text_of
from tracer.client.tracing import Tracing
from tracer.client.work import Plan, Step, ThinkAct

MAX_ENDED = 100
"""How many runs are remembered that ended, for what a task or a thread of theirs does yet."""

_SESSIONS = ("thread_id", "session_id", "conversation_id")


class Run:
    """A run of a chain, a graph, a model, a tool or a retriever."""

    def __init__(
        self, run_id: UUID, parent: Run | None, name: str | None, about: dict[str, Any]
    ) -> None:
        """Begin.

        Args:
            run_id: LangChain's id of it.
            parent: The run that it is in.
            name: What LangChain calls it.
            about: What else LangChain tells of it.
        """
        self.run_id = run_id
        self.parent = parent
        self.name = name
        self.metadata: dict[str, Any] = about.get("metadata") or {}
        self.tags: list[str] = about.get("tags") or []
        self.inputs: Any = None
        self.work: Work | None = None
        """What it is recorded as."""
        self.below: dict[UUID, Run] = {}
        self.of_task: dict[UUID, bool] | None = None
        self.is_graph = self.is_interrupted = self.is_structured = False

    @property
    def path(self) -> tuple[UUID, ...]:
        """The ids of the runs above it, the outermost first, and its own."""
        return (*(self.parent.path if self.parent else ()), self.run_id)

    @property
    def place(self) -> object:
        """What stays the same when a graph or a runnable tries it again."""
        return self.metadata.get("langgraph_checkpoint_ns") or (self.parent and self.parent.run_id)

    @property
    def holder(self) -> Run | None:
        """The nearest run above it that has a record."""
        return self.parent and self.parent.recorded

    @property
    def recorded(self) -> Run | None:
        """The nearest run that has a record, beginning with itself."""
        run: Run | None = self
        while run is not None and run.work is None:
            run = run.parent
        return run


class RunTree:
    """The runs under way.

    A run is dropped when it ends, or when one above it does. Of a tool or a model at the top that
    is cancelled, LangChain tells nothing: it is dropped when its task is done.
    """

    def __init__(self, tracing: Tracing) -> None:
        """Begin with none.

        Args:
            tracing: Where to record.
        """
        self.lock = threading.RLock()
        """To be held for all but `current`."""
        self._tracing = tracing
        self._runs: dict[UUID, Run] = {}
        self._choices: dict[UUID, Choices] = {}
        self._ended: dict[UUID, Run] = {}
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], dict[UUID, bool]] = WeakKeyDictionary()
        _trees.add(self)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._runs)

    def current(self) -> Work | None:
        """Return the work of the run that this code runs in, as LangChain's own context has it."""
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
    ) -> Run:
        """Return a new run.

        Args:
            run_id: LangChain's id of it.
            parent_run_id: That of the run that it is in.
            serialized: What LangChain tells of what runs.
            about: What else LangChain tells.
        """
        parent = self._find(parent_run_id)
        name = about.get("name") or (serialized or {}).get("name")
        self._runs[run_id] = run = Run(run_id, parent, name, about)
        if parent is None:
            self._forget_choices()
        elif parent.run_id in self._runs:
            parent.below[run_id] = run
        return run

    def watch(self, run: Run, task: asyncio.Task[Any] | None, may_go_on: bool = False) -> None:
        """Cancel a run when its task is done, where there is none above it.

        Args:
            run: The run.
            task: The task that it began in, if any.
            may_go_on: Whether it may go on in another task, as what is read bit by bit does: then
                that the task is done means nothing, unless it failed or was cancelled.
        """
        if task is None or (run.parent is not None and run.parent.run_id in self._runs):
            return
        if task not in self._tasks:
            self._tasks[task] = {}
            task.add_done_callback(self._sweep)
        run.of_task = self._tasks[task]
        run.of_task[run.run_id] = may_go_on

    def end(self, run_id: UUID) -> Run | None:
        """Return a run, and forget it; what is still open below is cancelled.

        LangChain tells nothing of a tool, a model or a node that was cancelled, but of the graph.
        """
        run = self._runs.pop(run_id, None)
        if run is None:
            return None
        if run.parent is not None:
            run.parent.below.pop(run_id, None)
        if run.of_task is not None:
            run.of_task.pop(run_id, None)
        for below in [*run.below.values()]:
            self._cancel(below.run_id)
        if isinstance(run.work, Plan):
            self._choices.pop(run.work.own_step.step_id, None)
        run.inputs = None
        if not isinstance(run.work, ThinkAct):
            self._ended[run_id] = run
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        return run

    def within(self, run: Run) -> Work | None:
        """Return what a run hangs under: the nearest record above it, or a block within that.

        A chain at the top becomes a plan for what is recorded in it. None: the run is at the top.
        """
        holder = run.holder
        place = innermost_of(holder.work if holder else None, current_work(self._tracing))
        if place is None and run.parent is not None:
            top = run.parent
            while top.parent is not None:
                top = top.parent
            return self.start_plan(top)
        return place

    def start_plan(self, run: Run) -> Plan:
        """Return the plan that a run is recorded as from now on."""
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
        _ = plan.own_step  # an agent is a plan of one step, also where it does nothing
        run.work = plan
        return plan

    def work_of(self, run_id: UUID) -> Work | None:
        """Return what a run that has not ended is recorded as."""
        run = self._runs.get(run_id)
        return None if run is None else run.work

    def note_graph(self, run: Run) -> None:
        """Note that a run is a graph's: a plan, unless it is but a part of the graph around it."""
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

    def settle(self, run_id: UUID, messages: list[BaseMessage]) -> None:
        """End the calls that were answered without a tool's run, as messages tell.

        Args:
            run_id: The run that is given the messages, of a model, or ends with them.
            messages: The messages.
        """
        run = self._runs.get(run_id)
        if run is not None and isinstance(run.work, (Plan, ThinkAct)):
            step = run.work.own_step if isinstance(run.work, Plan) else run.work.step
            self.choices(step).settle(messages)

    def _forget_choices(self) -> None:
        """Forget those of plans that are not LangChain's: of their ends nobody tells."""
        for step_id, choices in [*self._choices.items()]:
            if choices.step.plan.has_ended:
                del self._choices[step_id]

    def _find(self, run_id: UUID | None) -> Run | None:
        if run_id is None:
            return None
        return self._runs.get(run_id) or self._ended.get(run_id)

    def _sweep(self, task: asyncio.Task[Any]) -> None:
        with unharmed("langchain task"), self.lock:
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
    """Return the metadata of a run without what LangChain and LangGraph add."""
    return {
        name: value
        for name, value in metadata.items()
        if not name.startswith(_OF_FRAMEWORK) and name not in _ELSEWHERE
    }


_ELSEWHERE = (*_SESSIONS, "user_id")
"""Metadata that other fields of the run hold."""


def _unlock_all() -> None:
    for tree in list(_trees):
        tree.lock = threading.RLock()


# A thread that another one forks around may hold the lock; the forked process does not have it.
os.register_at_fork(after_in_child=_unlock_all)
