"""Threads: Tracer patches nothing unless the program asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.client.programs import NOBODY, run_program
from tracer.records.events import PlanStarted, ToolCallStarted

UNPATCHED = f"""
import asyncio, concurrent.futures, gc, threading
from concurrent.futures import ThreadPoolExecutor

def functions():
    owners = concurrent.futures, ThreadPoolExecutor, gc, threading, threading.Thread
    functions = [{{n: v for n, v in vars(each).items() if callable(v)}} for each in owners]
    return functions, list(gc.callbacks)

before = functions()
import tracer

@tracer.tool
def add(a: int, b: int, context: tracer.ToolContext) -> int:
    return a + b

async def call():
    async with tracer.ToolService([add]) as tools:
        with tracer.identity(token_id="ann"):
            return (await tools.call("add", {{"a": 3, "b": 4}})).result

with tracer.connect("{NOBODY}") as tracing, tracing.plan("one"):
    print(asyncio.run(call()))
print(functions() == before)
"""

THREADS = """
from concurrent.futures import ThreadPoolExecutor

class Worker(threading.Thread):
    def run(self):
        work("subclass")

def work(name):
    with tracing.tool_call(name):
        pass

def start(thread):
    thread.start()
    thread.join()

with tracing.plan("outer"):
    for name in ("first", "second"):
        start(threading.Thread(target=work, args=[name]))
    start(threading.Thread(target=tracer.in_context(work), args=["in_context"]))
    tracer.instrument_threads()
    start(threading.Thread(target=work, args=["thread"]))
    start(threading.Timer(0, work, ["timer"]))
    worker = Worker()
    start(worker)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, "pool").result()
assert "run" not in vars(worker)
"""


def test_recording_leaves_threads_executors_and_gc_as_they_were(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNPATCHED],
        env={**os.environ, "TRACER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "7\nTrue\n", done.stderr


async def test_threads_inherit_work_if_they_are_instrumented(tmp_path: Path) -> None:
    ended = await run_program(THREADS, tmp_path)

    assert ended.code == 0, ended.errors
    runs = {each.root_plan_id: each.title for each in ended.events if isinstance(each, PlanStarted)}
    calls = [
        (runs[each.root_plan_id], each.name)
        for each in ended.events
        if isinstance(each, ToolCallStarted)
    ]
    assert calls == [
        ("first", "first"),
        ("second", "second"),
        *(("outer", name) for name in ("in_context", "thread", "timer", "subclass", "pool")),
    ]
    assert ended.errors.count("run_started_in_another_thread") == 1
    assert "tracer.in_context(function)" in ended.errors
    assert "tracer.instrument_threads()" in ended.errors
