"""Runs of small applications, and what the store holds of them afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from tests.recordings import round_of
from tests.trees import Node, TreeRows, build_tree, read_tree
from tracer.lineage import Payloads
from tracer.recorder import Recorder, Spool
from tracer.records.record_classes import ThinkActRecord
from tracer.runtime import Agent, Application, RunLauncher
from tracer.runtime.chat_model import ChatModel, ChosenCall
from tracer.runtime.scripted_model import Script, Turn
from tracer.storage.memory import RecordingInMemory
from tracer.store import TraceReader, TraceWriter
from tracer.tools import Tool

ENDED = {"cancelled", "failed", "succeeded"}


def application(model: ChatModel, tools: Sequence[Tool | str] = (), **more: Any) -> Application:
    """Return an application with one agent, `worker`."""
    limits = {name: more.pop(name) for name in ("max_rounds", "max_parallel") if name in more}
    worker = Agent("worker", "Do your work.", tools=tuple(tools), **limits)
    return Application(name="tests", agents=(worker,), model=model, **more)


def script(
    request: str, *turns: Turn | Sequence[ChosenCall] | str, times: int | None = 1
) -> Script:
    """Return a script of `worker`: texts are answers, lists are chosen calls."""
    made = [
        each
        if isinstance(each, Turn)
        else Turn(each)
        if isinstance(each, str)
        else Turn(calls=each)
        for each in turns
    ]
    return Script(made, request=request, agent="worker", times=times)


@dataclass
class Bench:
    """A launcher with the store that it records to."""

    launcher: RunLauncher
    recorder: Recorder
    writer: TraceWriter
    reader: TraceReader | RecordingInMemory

    async def rows(self, root_plan_id: UUID) -> TreeRows:
        """Return the run's current records."""
        return await read_tree(self.reader, root_plan_id, Payloads.FULL)

    async def tree(self, root_plan_id: UUID) -> Node:
        """Return the run's hierarchy."""
        return build_tree(await self.rows(root_plan_id), str(root_plan_id))

    async def messages(self, think_act: Node) -> list[dict[str, Any]]:
        """Return what the model was given in a round."""
        record = await self.think_act(UUID(think_act["thinkActId"]))
        found: list[dict[str, Any]] = orjson.loads(record.messages or "")
        return found

    async def think_act(self, think_act_id: UUID) -> ThinkActRecord:
        """Return the complete record of a round."""
        if not isinstance(self.reader, RecordingInMemory):
            return await self.reader.read_think_act(think_act_id)
        return round_of(self.reader, think_act_id)


@asynccontextmanager
async def bench(
    application: Application,
    writer: TraceWriter,
    reader: TraceReader | RecordingInMemory,
    spool: Path,
    patience: float | None = None,
) -> AsyncIterator[Bench]:
    """Open a launcher for an application. All recorded events are stored when it closes.

    Args:
        application: The application.
        writer: The store to record to.
        reader: The same store.
        spool: The directory of the spool.
        patience: How many seconds an event waits for the store; see `Recorder`.
    """
    async with (
        Recorder(writer, Spool(spool / "spool.db"), patience=patience) as recorder,
        RunLauncher(application, recorder, reader, poll_seconds=0.001) as launcher,
    ):
        yield Bench(launcher, recorder, writer, reader)


def everything(rows: TreeRows) -> list[Node]:
    """Return the nodes of all kinds."""
    return [*rows.plans, *rows.steps, *rows.think_acts, *rows.tool_calls]


def outline(node: Node, indent: str = "") -> str:
    """Return a tree as indented text without ids and times."""
    if "planId" in node and "title" in node:
        words = ["plan", node["title"]]
    elif "thinkActId" in node and "thought" in node:
        words = ["think-act", node["thought"]]
    elif "arguments" in node:
        words = ["call", node["name"], node["arguments"], "→", node["result"]]
    else:
        words = ["step", node["agentName"], node["request"]]
    status = node["status"] + (f"/{node['reason']}" if node["reason"] else "")
    line = f"{indent}{' '.join(str(word) for word in words if word)} [{status}]"
    below = [
        outline(child, indent + "  ")
        for children in ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")
        for child in node.get(children, ())
    ]
    return "\n".join([line.rstrip(), *below])
