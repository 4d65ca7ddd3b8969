"""The application that tests of `tracer run` name in `TRACER_APP`."""

from __future__ import annotations

import asyncio
import threading

from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools import tool

waiting = threading.Event()
"""Set when the tool `wait` runs."""


@tool
def measure() -> str:
    """Measure."""
    return "121/79"


@tool
async def wait() -> None:
    """Wait until the run is cancelled."""
    waiting.set()
    await asyncio.Event().wait()


_scripts = (
    Script([Turn(calls=[call("measure")]), Turn(text="121/79: well.")], "How is p-1?", times=None),
    Script([Turn(calls=[call("wait")])], "Wait.", times=None),
)
application = Application(
    name="ward",
    agents=(Agent("nurse", "Measure.", (measure, wait)),),
    model=ScriptedModel(_scripts),
)
