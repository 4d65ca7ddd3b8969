"""A process that has a tool call under way, says which, and does nothing until it is killed.

Usage: python -m tests.recorder.dying_process runtime|client SERVER HOME
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import tracer
from tests.recorder.plans import plan_started
from tracer.recorder import Recorder, Spool
from tracer.records import new_id
from tracer.records.events import ToolCallStarted
from tracer.storage.http import HttpWriter


async def call_with_recorder(server: str, home: Path) -> None:
    async with Recorder(HttpWriter(server), Spool(home / "spool.db")) as recorder:
        plan = plan_started(recorder)
        call = ToolCallStarted(
            **recorder.stamp(),
            root_plan_id=plan.root_plan_id,
            plan_id=plan.plan_id,
            step_id=new_id(),
            tool_call_id=new_id(),
            name="measure",
        )
        await recorder.record(plan, call)
        os.write(1, str(plan.root_plan_id).encode() + b"\n")
        await asyncio.Event().wait()


def call_with_connection(server: str) -> None:
    tracing = tracer.connect(server)
    with tracing, tracing.plan("one") as plan, tracing.tool_call("measure"):
        os.write(1, str(plan.root_plan_id).encode() + b"\n")
        signal.pause()


if __name__ == "__main__":
    kind, address, folder = sys.argv[1:]
    if kind == "runtime":
        asyncio.run(call_with_recorder(address, Path(folder)))
    else:
        call_with_connection(address)
