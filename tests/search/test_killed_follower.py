"""A follower that is killed: the next one makes the index equal to one built from scratch."""

from __future__ import annotations

import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from pathlib import Path

from tests.sample_runs import SampleRun, sample_run
from tests.searching import catch_up
from tracer.records.events import PlanFinished
from tracer.search import Hit, Query, SearchDirectory, SearchIndex
from tracer.storage.postgres import (
    ProjectPool,
    connection_options,
    open_pool,
    postgres_writer,
    sync_connection,
)
from tracer.storage.postgres.search_source import SearchSource

FOLLOW = """
import sys
from pathlib import Path
from tests.searching import without_pauses
from tracer.search import Follower, SearchDirectory
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.search_source import SearchSource

with without_pauses(), sync_connection(connection_options(sys.argv[1])) as connection:
    follower = Follower(SearchSource(connection), SearchDirectory(Path(sys.argv[2])))
    while True:
        print("step", flush=True)
        follower.step()
"""
RUNS, KILLS = 120, (1, 2, 4)
"""Three steps index all runs. Each process is killed in one of its first steps."""


async def test_index_equals_one_built_from_scratch_after_kills_of_the_follower(
    database_url: str, tmp_path: Path
) -> None:
    followed, fresh = (SearchDirectory(tmp_path / name) for name in ("followed", "fresh"))
    runs = [sample_run(sub_plans=0) for _ in range(RUNS)]
    async with open_pool(database_url) as pool:
        writer = postgres_writer(ProjectPool(pool))
        await writer.write([event for run in runs for event in run.events])
        for number, steps in enumerate(KILLS):
            command = [sys.executable, "-c", FOLLOW, database_url, str(followed.path)]
            process = await create_subprocess_exec(*command, stdout=PIPE)
            assert process.stdout is not None
            for _ in range(steps):
                assert await process.stdout.readline() == b"step\n"
            await writer.write([_changed(run, number) for run in runs[::7]])
            process.kill()
            await process.wait()
    with sync_connection(connection_options(database_url)) as connection:
        for directory in (followed, fresh):
            catch_up(SearchSource(connection), directory)
    assert _content(followed) == _content(fresh)
    assert {word: len(hits) for word, hits in _content(fresh).items()} == {
        "measure": RUNS,
        "answer0": 0,
        "answer1": 0,
        "answer2": len(runs[::7]),
    }


def _changed(run: SampleRun, number: int) -> PlanFinished:
    end = next(each for each in run.events if isinstance(each, PlanFinished))
    return end.model_copy(update={"summary": f"answer{number}", "at": end.at.replace(year=2030)})


def _content(directory: SearchDirectory) -> dict[str, list[Hit]]:
    search = SearchIndex(directory)
    words = ("measure", "answer0", "answer1", "answer2")
    return {word: search.hits(Query.parse(f"{word} "), 1, RUNS) for word in words}
