"""Group commit: writes that share a batch, writes that wait, and the answer to each writer."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from tracer.errors import StoreUnavailable
from tracer.storage.postgres.pool import Numbered, PartlyWritten
from tracer.storage.postgres.writer import BATCH_SIZE, GroupCommit
from tracer.store import Refusal

Item = tuple[int, str]
"""A run and a text; the text `bad` is refused and `lost` fails."""


def run_of(item: Item) -> int:
    return item[0]


class Disk:
    """Records batches, and writes each when its runs are released."""

    def __init__(self) -> None:
        self.batches: list[list[Item]] = []
        self.stuck: dict[int, asyncio.Event] = {}
        self.is_writing: set[int] = set()

    async def write(self, items: list[Numbered[Item]]) -> list[Refusal]:
        batch = [item for _, item in items]
        runs = {run for run, _ in batch}
        self.batches.append(batch)
        assert self.is_writing.isdisjoint(runs)
        self.is_writing |= runs
        for run in runs & self.stuck.keys():
            await self.stuck[run].wait()
        self.is_writing -= runs
        if any(text == "lost" for _, text in batch):
            raise StoreUnavailable
        return [Refusal(index, "bad", "It is bad.") for index, (_, text) in items if text == "bad"]

    def hold(self, *runs: int) -> None:
        self.stuck |= {run: asyncio.Event() for run in runs}

    def release(self) -> None:
        for event in self.stuck.values():
            event.set()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def commits(disk: Disk) -> GroupCommit[Item]:
    return GroupCommit(disk.write, run_of)


async def settle() -> None:
    """Run everything that waits for nothing."""
    for _ in range(10):
        await asyncio.sleep(0)


async def queue(
    commits: GroupCommit[Item], *writes: list[Item]
) -> list[asyncio.Task[list[Refusal]]]:
    """Write one after another, each in ticks of the event loop of its own."""
    tasks = []
    for items in writes:
        tasks.append(asyncio.create_task(commits.write(items, len(items))))
        await settle()
    return tasks


async def occupy(commits: GroupCommit[Item], disk: Disk) -> list[asyncio.Task[list[Refusal]]]:
    """Make further writes wait until the disk is released."""
    disk.hold(1, 2)
    busy = await queue(commits, [(1, "a")], [(2, "a")])
    assert disk.batches == [[(1, "a")], [(2, "a")]]
    disk.batches.clear()
    return busy


async def test_writes_in_the_same_loop_tick_share_a_batch(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    await asyncio.gather(*(commits.write([(run, "new")], 1) for run in range(20)))
    assert disk.batches == [[(run, "new") for run in range(20)]]


async def test_waiting_writes_share_the_next_batch(commits: GroupCommit[Item], disk: Disk) -> None:
    busy = await occupy(commits, disk)
    waiting = await queue(commits, *([(run, "new")] for run in range(100, 120)))
    assert disk.batches == []
    disk.release()
    await asyncio.gather(*busy, *waiting)
    assert disk.batches == [[(run, "new") for run in range(100, 120)]]


async def test_write_of_one_run_proceeds_while_another_waits_for_a_lock(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    disk.hold(1)
    stuck, first, second = await queue(commits, [(1, "a")], [(2, "b")], [(3, "c")])
    assert await first == await second == []
    assert not stuck.done()
    disk.release()
    assert await stuck == []


async def test_concurrent_batches_never_contain_the_same_run(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    disk.hold(1)
    tasks = await queue(commits, [(1, "a")], [(1, "b")], [(1, "c"), (2, "c")], [(3, "d")])
    assert disk.batches == [[(1, "a")], [(3, "d")]]
    disk.release()
    await asyncio.gather(*tasks)
    assert disk.batches[2:] == [[(1, "b"), (1, "c"), (2, "c")]]


async def test_writes_to_one_run_stay_in_order(commits: GroupCommit[Item], disk: Disk) -> None:
    disk.hold(1)
    tasks = await queue(commits, [(1, "a")], [(1, "b"), (2, "b")], [(2, "c")])
    assert disk.batches == [[(1, "a")]]
    disk.release()
    await asyncio.gather(*tasks)
    assert disk.batches[1:] == [[(1, "b"), (2, "b"), (2, "c")]]


async def test_batch_size_is_limited_except_for_one_large_write(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    busy = await occupy(commits, disk)
    large = [(100, "large")] * (BATCH_SIZE + 1)
    waiting = await queue(commits, large, [(101, "small")], [(102, "small")])
    disk.release()
    await asyncio.gather(*busy, *waiting)
    assert sorted(map(len, disk.batches)) == [2, BATCH_SIZE + 1]


async def test_write_that_does_not_fit_into_a_full_batch_starts_another(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    disk.hold(1)
    full, rest = [
        asyncio.create_task(commits.write(items, len(items)))
        for items in ([(1, "full")] * BATCH_SIZE, [(2, "rest")])
    ]
    assert await rest == []
    disk.release()
    assert await full == []


async def test_each_writer_of_a_batch_gets_its_own_rejections(commits: GroupCommit[Item]) -> None:
    good, mixed, bad = await asyncio.gather(
        commits.write([(100, "good")], 1),
        commits.write([(101, "good"), (101, "bad")], 2),
        commits.write([(102, "bad"), (102, "good")], 2),
    )
    assert good == []
    assert [refusal.index for refusal in mixed] == [1]
    assert [refusal.index for refusal in bad] == [0]


async def test_failed_batch_fails_only_its_own_writers(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    disk.hold(1)
    stuck, failed, same_batch = await queue(
        commits, [(1, "a")], [(2, "a"), (1, "lost")], [(3, "a"), (1, "b")]
    )
    other = commits.write([(4, "a")], 1)
    assert await other == []
    disk.release()
    assert await stuck == []
    for task in (failed, same_batch):
        with pytest.raises(StoreUnavailable):
            await task
    assert await commits.write([(1, "next")], 1) == []


async def test_writer_whose_items_were_written_gets_no_error_of_its_batch() -> None:
    async def write_even_runs(items: list[Numbered[Item]]) -> list[Refusal]:
        written = {index for index, (run, _) in items if run % 2 == 0}
        bad = [index for index, (_, text) in items if text == "bad" and index in written]
        refused = [Refusal(index, "bad", "It is bad.") for index in bad]
        raise PartlyWritten(written, refused)

    commits = GroupCommit(write_even_runs, run_of)
    writes: list[list[Item]] = [
        [(2, "good"), (4, "bad")],
        [(1, "lost")],
        [(2, "good"), (3, "lost")],
    ]
    [refused, *failures] = await asyncio.gather(
        *(commits.write(items, len(items)) for items in writes), return_exceptions=True
    )
    assert refused == [Refusal(1, "bad", "It is bad.")]
    assert [type(failure) for failure in failures] == [PartlyWritten, PartlyWritten]


async def test_items_of_a_write_that_is_cancelled_in_the_queue_are_not_written(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    busy = await occupy(commits, disk)
    given_up, patient = await queue(commits, [(100, "given up")], [(101, "patient")])
    given_up.cancel()
    await asyncio.wait([given_up])
    assert commits.waiting == 1
    disk.release()
    await asyncio.gather(*busy, patient)
    assert disk.batches == [[(101, "patient")]]


async def test_write_starts_after_the_previous_write_of_its_run_is_cancelled(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    disk.hold(1)
    busy, given_up, behind = await queue(
        commits, [(1, "busy")], [(1, "given up"), (2, "given up")], [(2, "behind")]
    )
    given_up.cancel()
    assert await behind == []
    assert disk.batches == [[(1, "busy")], [(2, "behind")]]
    disk.release()
    assert await busy == []


async def test_cancelled_writer_does_not_stop_its_batch(
    commits: GroupCommit[Item], disk: Disk
) -> None:
    disk.hold(1)
    given_up, patient = [asyncio.create_task(commits.write([(run, "new")], 1)) for run in (1, 2)]
    await settle()
    given_up.cancel()
    await asyncio.wait([given_up])
    disk.release()
    assert await patient == []
    assert await commits.write([(1, "next")], 1) == []


def test_program_exits_while_a_write_hangs(disk: Disk) -> None:
    async def end_early() -> list[asyncio.Task[list[Refusal]]]:
        commits = GroupCommit(disk.write, run_of)
        disk.hold(1)
        return await queue(commits, [(1, "stuck")], [(1, "waiting"), (2, "waiting")])

    writes = asyncio.run(end_early())
    assert all(write.cancelled() for write in writes)
    assert disk.batches == [[(1, "stuck")]]


async def test_empty_write_makes_no_batch(commits: GroupCommit[Item], disk: Disk) -> None:
    assert await commits.write([], 0) == []
    assert disk.batches == []


async def test_group_commit_reports_batches_and_runs_without_a_callers_context(disk: Disk) -> None:
    caller: ContextVar[str] = ContextVar("caller", default="none")
    callers: set[str] = set()
    durations: list[float] = []

    async def write(items: list[Numbered[Item]]) -> list[Refusal]:
        callers.add(caller.get())
        return await disk.write(items)

    commits = GroupCommit(write, run_of, durations.append)
    caller.set("mine")
    busy = await occupy(commits, disk)
    waiting = await queue(commits, [(100, "a"), (100, "b")], [(101, "c")])
    assert commits.waiting == 2
    disk.release()
    await asyncio.gather(*busy, *waiting)

    assert commits.waiting == 0
    assert len(durations) == 3
    assert callers == {"none"}
