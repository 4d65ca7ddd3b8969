"""`tracing.about`: who a run is for, in blocks, tasks and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest

from tests.adapters.recording import PLENTY_SECONDS, RecordedStore, recording
from tests.recordings import runs_of
from tracer.client import Tracing
from tracer.context import in_context

Recording = tuple[Tracing, RecordedStore]
About = tuple[str | None, str | None, list[str], Any]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recording]:
    with recording(tmp_path) as both:
        yield both


async def abouts(store: RecordedStore) -> dict[str | None, About]:
    """Return user, session, tags and metadata of each run, by title."""
    assert await asyncio.to_thread(store.tracing.flush, PLENTY_SECONDS)
    return {
        run.title: (
            run.subject,
            run.session_id,
            run.tags,
            run.run_metadata and orjson.loads(run.run_metadata),
        )
        for run in runs_of(store)
    }


async def test_runs_inside_the_block_have_its_values(recorded: Recording) -> None:
    tracing, store = recorded

    with tracing.about(user="ann", session="s-1", tags=["beta"], metadata={"plan": "pro"}):
        with tracing.plan("a plan"):
            pass
        with tracing.tool_call("a call without a plan"):
            pass
        tracing.traced("plan", "a function")(lambda: None)()
    with tracing.plan("afterwards"):
        pass

    ann: About = ("ann", "s-1", ["beta"], {"plan": "pro"})
    assert await abouts(store) == {
        "a plan": ann,
        "a call without a plan": ann,
        "a function": ann,
        "afterwards": (None, None, [], None),
    }


async def test_inner_values_replace_outer_ones_and_tags_add_up(recorded: Recording) -> None:
    tracing, store = recorded

    outer = tracing.about(user="ann", session="s-1", tags=["a"], metadata={"x": 1, "y": 1})
    with outer, tracing.about(user="bob", tags="b", metadata={"y": 2}):
        with tracing.plan("nested"):
            pass
        with tracing.plan(
            "own", subject="cid", session_id="s-2", tags=["a", "c"], metadata={"z": 3}
        ):
            pass

    assert await abouts(store) == {
        "nested": ("bob", "s-1", ["a", "b"], {"x": 1, "y": 2}),
        "own": ("cid", "s-2", ["a", "b", "c"], {"x": 1, "y": 2, "z": 3}),
    }


async def test_started_run_and_its_sub_plans_keep_their_values(recorded: Recording) -> None:
    tracing, store = recorded

    with (
        tracing.about(user="ann"),
        tracing.plan("outer"),
        tracing.about(user="bob", tags=["late"]),
        tracing.tool_call("ask"),
        tracing.plan("inner"),
    ):
        pass

    assert await abouts(store) == {"outer": ("ann", None, [], None)}


async def test_tasks_and_threads_have_the_values_of_their_creator(recorded: Recording) -> None:
    tracing, store = recorded

    def run(title: str) -> None:
        with tracing.plan(title):
            pass

    async def serve(user: str) -> None:
        with tracing.about(user=user):
            await asyncio.to_thread(run, f"to_thread {user}")
            thread = Thread(target=in_context(run), args=[f"thread {user}"])
            thread.start()
            with ThreadPoolExecutor() as pool:
                pool.submit(in_context(run), f"pool {user}")
            await asyncio.create_task(asyncio.to_thread(run, f"task {user}"))
            thread.join()

    await asyncio.gather(serve("ann"), serve("bob"))

    ways = ("to_thread", "thread", "pool", "task")
    assert {title: about[0] for title, about in (await abouts(store)).items()} == {
        f"{way} {user}": user for way in ways for user in ("ann", "bob")
    }


async def test_values_of_one_connection_do_not_reach_another(
    recorded: Recording, tmp_path: Path
) -> None:
    tracing, store = recorded

    with recording(tmp_path / "other") as (other, other_store):
        with tracing.about(user="ann"), other.about(session="s-1"):
            with tracing.plan("here"):
                pass
            with other.plan("there"):
                pass
        there = await abouts(other_store)

    assert await abouts(store) == {"here": ("ann", None, [], None)}
    assert there == {"there": (None, "s-1", [], None)}


async def test_invalid_values_do_not_stop_the_program(recorded: Recording) -> None:
    tracing, store = recorded
    invalid: Any = 7

    with tracing.about(user=invalid, tags=invalid, metadata=invalid), tracing.plan("a plan"):
        pass

    assert await abouts(store) == {"a plan": ("7", None, [], None)}


async def test_values_of_an_abandoned_generator_do_not_reach_its_reader(
    recorded: Recording,
) -> None:
    tracing, store = recorded

    def answers() -> Generator[str]:
        with tracing.about(user="ann"):
            yield "one"

    generator = answers()
    next(generator)
    await asyncio.to_thread(generator.close)
    with tracing.plan("the reader's"):
        pass

    assert await abouts(store) == {"the reader's": (None, None, [], None)}
