"""The recorded tree equals the nesting of blocks, tasks and threads in a program."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.recording import recording, tree_of, trees_of
from tests.profiles import scaled
from tests.trees import Node
from tracer.client import Tracing
from tracer.context import in_context

Kind = Literal["plan", "step", "thinkAct", "toolCall"]
Way = Literal["block", "async block", "thread", "pool", "to_thread"]


@dataclass(frozen=True)
class Program:
    """A block with others in it, all at once, each entered in its own way."""

    kind: Kind
    way: Way
    within: tuple[Program, ...] = ()


KINDS: st.SearchStrategy[Kind] = st.sampled_from(["plan", "step", "thinkAct", "toolCall"])
WAYS: st.SearchStrategy[Way] = st.sampled_from(
    ["block", "async block", "thread", "pool", "to_thread"]
)
PROGRAMS: st.SearchStrategy[Program] = st.recursive(
    st.builds(Program, KINDS, WAYS),
    lambda within: st.builds(Program, KINDS, WAYS, st.lists(within, max_size=4).map(tuple)),
    max_leaves=12,
)


@dataclass
class Expected:
    """A node of the tree that a program has to have."""

    kind: str
    parent: Expected | None = None
    below: list[Expected] = field(default_factory=list)
    own_step: Expected | None = None

    def add(self, kind: str) -> Expected:
        self.below.append(Expected(kind, self))
        return self.below[-1]

    def nearest(self, *kinds: str) -> Expected:
        """Return the nearest of these kinds from here up."""
        if self.kind in kinds:
            return self
        assert self.parent is not None
        return self.parent.nearest(*kinds)

    def working_step(self) -> Expected:
        """Return the step that work here belongs to."""
        found = self.nearest("step", "plan")
        if found.kind == "step":
            return found
        found.own_step = found.own_step or found.add("step")
        return found.own_step

    def enter(self, kind: Kind) -> Expected:
        """Return the place of a block within this one."""
        match kind:
            case "step":
                return self.nearest("plan").add(kind)
            case "thinkAct":
                return self.working_step().add(kind)
            case "toolCall" if self.kind in ("thinkAct", "toolCall"):
                return self.add(kind)
            case "plan" if self.kind == "toolCall":
                return self.add(kind)
            case _:
                return self.working_step().add(kind)


def expected(program: Program, around: Expected | None = None) -> Expected:
    """Return the root of what a program has to be recorded as."""
    if around is None:
        root = Expected("plan")
        here = root if program.kind == "plan" else root.enter(program.kind)
    else:
        here = root = around.enter(program.kind)
    for each in program.within:
        expected(each, here)
    return root


def shape(node: Expected) -> Any:
    return node.kind, sorted(shape(each) for each in node.below)


def seen_shape(node: Node) -> Any:
    children = (
        child
        for name in ("agentExecutions", "thinkActs", "toolCalls", "subPlans")
        for child in node.get(name, ())
    )
    assert node["status"] == "succeeded"
    return str(node["kind"]), sorted(seen_shape(each) for each in children)


def _block(tracing: Tracing, kind: Kind) -> Any:
    match kind:
        case "plan":
            return tracing.plan()
        case "step":
            return tracing.step()
        case "thinkAct":
            return tracing.think_act([])
        case "toolCall":
            return tracing.tool_call("tool")


def run(tracing: Tracing, program: Program) -> None:
    """Carry a program out where there is no event loop."""
    if program.way == "async block":
        asyncio.run(run_async(tracing, program))
        return
    with _block(tracing, program.kind), ThreadPoolExecutor() as pool:
        threads = []
        for each in program.within:
            if each.way == "thread":
                threads.append(threading.Thread(target=in_context(run), args=(tracing, each)))
                threads[-1].start()
            elif each.way == "pool":
                pool.submit(in_context(run), tracing, each)
            else:
                run(tracing, each)
        for thread in threads:
            thread.join()


async def run_async(tracing: Tracing, program: Program) -> None:
    """Carry a program out in an event loop."""
    async with _block(tracing, program.kind):
        await asyncio.gather(*(_enter(tracing, each) for each in program.within))


async def _enter(tracing: Tracing, program: Program) -> None:
    match program.way:
        case "async block":
            await run_async(tracing, program)
        case "to_thread":
            await asyncio.to_thread(run, tracing, program)
        case "pool" | "block":
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, in_context(run), tracing, program)
        case "thread":
            thread = threading.Thread(target=in_context(run), args=(tracing, program))
            thread.start()
            await asyncio.to_thread(thread.join)


@settings(max_examples=scaled(60))
@given(PROGRAMS)
async def test_recorded_tree_matches_the_nesting_of_the_program(program: Program) -> None:
    with TemporaryDirectory() as folder, recording(Path(folder)) as (tracing, store):
        await _enter(tracing, program)
        tree = await tree_of(store)

    assert tree["unplaced"] == []
    assert seen_shape(tree) == shape(expected(program))


@pytest.mark.parametrize("number", [100, pytest.param(1000, marks=pytest.mark.thorough)])
async def test_concurrent_threads_have_separate_current_work(tmp_path: Path, number: int) -> None:
    with recording(tmp_path, buffered=True) as (tracing, store):

        def work(name: str) -> None:
            with (
                tracing.tool_call(f"outer {name}"),
                tracing.plan(f"plan {name}"),
                tracing.tool_call(f"inner {name}"),
            ):
                pass

        with tracing.plan("all"):
            start = in_context(work)
            threads = [threading.Thread(target=start, args=(str(each),)) for each in range(number)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        [tree] = await trees_of(store)

    [step] = tree["agentExecutions"]
    seen = {
        (call["name"], sub_plan["title"], inner["name"])
        for call in step["toolCalls"]
        for sub_plan in call["subPlans"]
        for sub_step in sub_plan["agentExecutions"]
        for inner in sub_step["toolCalls"]
    }
    assert seen == {(f"outer {each}", f"plan {each}", f"inner {each}") for each in range(number)}
