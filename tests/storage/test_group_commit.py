from __future__ import annotations

import asyncio
from contextvars import ContextVar
from uuid import UUID

import pytest

from tracer.errors import StoreUnavailable
from tracer.storage.group_commit import (
    GROUP_ITEMS,
    LANES,
    LARGE_ITEMS,
    SHARED_ITEMS,
    GroupCommit,
)
from tracer.storage.write_errors import Numbered, PartlyWritten
from tracer.store import Refusal

Item = tuple[int, str]
"""A run, and what is said of it."""


class Disk:
    """Writes groups when it is let, and knows which."""

    def __init__(self) -> None:
        self.groups: list[list[Item]] = []
        self.let = asyncio.Event()
        self.begun = asyncio.Event()
        self.fails_on: set[Item] = set()

    async def write(self, items: list[Numbered[Item]]) -> list[Refusal]:
        group = [item for _, item in items]
        self.groups.append(group)
        self.begun.set()
        await self.let.wait()
        if self.fails_on & set(group):
            raise StoreUnavailable
        return [Refusal(index, "bad", "It is bad.") for index, (_, said) in items if said == "bad"]


@pytest.fixture
def disk() -> Disk:
    return Disk()


def grouping(disk: Disk, patience_seconds: float = 60) -> GroupCommit[Item]:
    """Return a group commit whose small groups wait long, even on a slow machine."""
    return GroupCommit(
        disk.write, lambda item: UUID(int=item[0]), patience_seconds=patience_seconds
    )


@pytest.fixture
def together(disk: Disk) -> GroupCommit[Item]:
    return grouping(disk)


async def fill_lanes(together: GroupCommit[Item], disk: Disk) -> list[asyncio.Task[list[Refusal]]]:
    lanes = await queue(together, *([(run, "lane")] for run in range(LANES)))
    assert len(disk.groups) == LANES
    return lanes


async def settle() -> None:
    """Let everything go on that nothing holds up."""
    for _ in range(5):
        await asyncio.sleep(0)


async def queue(
    together: GroupCommit[Item], *writes: list[Item]
) -> list[asyncio.Task[list[Refusal]]]:
    """Write one after another, each in turns of the event loop of its own."""
    tasks = []
    for items in writes:
        tasks.append(asyncio.create_task(together.write(items)))
        await settle()
    return tasks


@pytest.mark.thorough
async def test_who_comes_in_the_same_turn_goes_in_one_group(
    together: GroupCommit[Item], disk: Disk
) -> None:
    tasks = [asyncio.create_task(together.write([(run, "new")])) for run in range(20)]
    await settle()
    assert list(map(len, disk.groups)) == [20]
    disk.let.set()
    await asyncio.gather(*tasks)


@pytest.mark.thorough
async def test_a_group_leaves_half_of_many_to_the_other_lane(
    together: GroupCommit[Item], disk: Disk
) -> None:
    count = 2 * SHARED_ITEMS + 10
    tasks = [asyncio.create_task(together.write([(run, "new")])) for run in range(count)]
    await settle()
    assert list(map(len, disk.groups)) == [count // 2, count // 2]
    disk.let.set()
    await asyncio.gather(*tasks)


@pytest.mark.thorough
async def test_writers_of_the_same_run_are_not_parted(
    together: GroupCommit[Item], disk: Disk
) -> None:
    count = 4 * SHARED_ITEMS
    tasks = [asyncio.create_task(together.write([(7, "new")])) for _ in range(count)]
    await settle()
    assert list(map(len, disk.groups)) == [count]
    disk.let.set()
    await asyncio.gather(*tasks)


@pytest.mark.thorough
async def test_what_waits_meanwhile_goes_in_one_group(
    together: GroupCommit[Item], disk: Disk
) -> None:
    lanes = await fill_lanes(together, disk)
    waiting = await queue(together, *([(100 + number, "new")] for number in range(20)))
    disk.let.set()
    await asyncio.gather(*lanes, *waiting)
    assert len(disk.groups) == LANES + 1
    assert len(disk.groups[-1]) == 20


@pytest.mark.thorough
async def test_each_hears_of_its_own_refusals_by_its_own_places(
    together: GroupCommit[Item], disk: Disk
) -> None:
    lanes = await fill_lanes(together, disk)
    good, mixed, bad = await queue(
        together, [(100, "good")], [(101, "good"), (101, "bad")], [(102, "bad"), (102, "good")]
    )
    disk.let.set()
    await asyncio.gather(*lanes)
    assert await good == []
    assert [refusal.index for refusal in await mixed] == [1]
    assert [refusal.index for refusal in await bad] == [0]


@pytest.mark.thorough
async def test_a_run_is_in_one_lane_at_a_time(together: GroupCommit[Item], disk: Disk) -> None:
    first, second, other = await queue(together, [(1, "a")], [(1, "b")], [(2, "c")])
    assert disk.groups == [[(1, "a")], [(2, "c")]]
    disk.let.set()
    await asyncio.gather(first, second, other)
    assert disk.groups[-1] == [(1, "b")]


@pytest.mark.thorough
async def test_nobody_overtakes_who_waits_for_the_same_run(
    together: GroupCommit[Item], disk: Disk
) -> None:
    await queue(together, [(1, "a")])
    tasks = await queue(together, [(1, "b"), (2, "b")], [(2, "c")])
    assert disk.groups == [[(1, "a")]]
    disk.let.set()
    await asyncio.gather(*tasks)
    assert disk.groups == [[(1, "a")], [(1, "b"), (2, "b"), (2, "c")]]


@pytest.mark.thorough
async def test_a_group_has_a_bound_and_a_single_write_has_none(
    together: GroupCommit[Item], disk: Disk
) -> None:
    lanes = await fill_lanes(together, disk)
    large = [(100, "large")] * (GROUP_ITEMS + 1)
    waiting = await queue(together, large, [(101, "small")], [(102, "small")])
    disk.let.set()
    await asyncio.gather(*lanes, *waiting)
    assert sorted(map(len, disk.groups[LANES:])) == [2, GROUP_ITEMS + 1]


@pytest.mark.thorough
async def test_a_small_group_begins_beside_another_when_it_is_as_large(
    together: GroupCommit[Item], disk: Disk
) -> None:
    first = [(1, "a"), (1, "b"), (1, "c")]
    tasks = await queue(together, first, [(2, "d")], [(3, "e")])
    assert disk.groups == [first]
    tasks += await queue(together, [(4, "f")])
    assert disk.groups == [first, [(2, "d"), (3, "e"), (4, "f")]]
    disk.let.set()
    await asyncio.gather(*tasks)


@pytest.mark.thorough
async def test_a_large_group_begins_beside_a_larger_one(
    together: GroupCommit[Item], disk: Disk
) -> None:
    tasks = await queue(together, [(1, "a")] * GROUP_ITEMS, [(2, "b")] * LARGE_ITEMS)
    assert list(map(len, disk.groups)) == [GROUP_ITEMS, LARGE_ITEMS]
    disk.let.set()
    await asyncio.gather(*tasks)


@pytest.mark.thorough
async def test_nobody_waits_long_for_a_larger_group_that_is_stuck(
    disk: Disk,
) -> None:
    together = grouping(disk, patience_seconds=0.25)
    stuck, small = await queue(together, [(1, "a"), (1, "b")], [(2, "c")])
    assert len(disk.groups) == 1
    disk.begun.clear()
    async with asyncio.timeout(30):
        await disk.begun.wait()
    assert disk.groups[-1] == [(2, "c")]
    disk.let.set()
    await asyncio.gather(stuck, small)


async def test_a_failure_reaches_those_of_its_group_alone(
    together: GroupCommit[Item], disk: Disk
) -> None:
    disk.fails_on = {(1, "lost")}
    lost, kept = await queue(together, [(1, "lost")], [(2, "kept")])
    disk.let.set()
    assert await kept == []
    with pytest.raises(StoreUnavailable):
        await lost
    assert await together.write([(1, "next")]) == []


async def test_who_has_all_of_its_items_written_hears_of_no_failure_of_others() -> None:
    async def write_some(items: list[Numbered[Item]]) -> list[Refusal]:
        """Write what belongs to even runs."""
        written = {index for index, (run, _) in items if run % 2 == 0}
        bad = [index for index, (_, said) in items if said == "bad" and index in written]
        refused = [Refusal(index, "bad", "It is bad.") for index in bad]
        raise PartlyWritten(written, refused)

    together = GroupCommit(write_some, lambda item: UUID(int=item[0]))
    await together.write([(2, "kept")])
    [refusal] = await together.write([(2, "good"), (4, "bad")])
    assert refusal.index == 1
    for lost in ([(1, "lost")], [(2, "kept"), (3, "lost")]):
        with pytest.raises(StoreUnavailable):
            await together.write(lost)


@pytest.mark.thorough
async def test_who_gives_up_before_its_turn_is_not_written(
    together: GroupCommit[Item], disk: Disk
) -> None:
    lanes = await fill_lanes(together, disk)
    given_up, patient = await queue(together, [(100, "given up")], [(101, "patient")])
    given_up.cancel()
    await asyncio.wait([given_up])
    disk.let.set()
    await asyncio.gather(*lanes, patient)
    assert disk.groups[-1] == [(101, "patient")]


@pytest.mark.thorough
async def test_who_waited_behind_one_that_gives_up_is_written(
    together: GroupCommit[Item], disk: Disk
) -> None:
    busy, given_up, behind = await queue(
        together, [(1, "busy")], [(1, "given up"), (2, "given up")], [(2, "behind")]
    )
    assert len(disk.groups) == 1
    given_up.cancel()
    await settle()
    assert disk.groups[1:] == [[(2, "behind")]]
    disk.let.set()
    await asyncio.gather(busy, behind)


@pytest.mark.thorough
async def test_who_gives_up_while_it_is_written_takes_nobody_along(
    together: GroupCommit[Item], disk: Disk
) -> None:
    lanes = await fill_lanes(together, disk)
    lanes[0].cancel()
    await asyncio.wait([lanes[0]])
    disk.let.set()
    await asyncio.gather(*lanes[1:])
    assert await together.write([(0, "next")]) == []


@pytest.mark.thorough
async def test_nothing_to_write_waits_for_nobody(together: GroupCommit[Item], disk: Disk) -> None:
    assert await together.write([]) == []
    assert disk.groups == []


@pytest.mark.thorough
async def test_a_group_is_counted_and_is_nobody_s_own(disk: Disk) -> None:
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")
    groups: list[int] = []

    async def write(items: list[Numbered[Item]]) -> list[Refusal]:
        said.append(whose.get())
        return await disk.write(items)

    said: list[str] = []
    together = GroupCommit(
        write, lambda item: UUID(int=item[0]), lambda seconds, items: groups.append(items)
    )
    whose.set("mine")
    lanes = await fill_lanes(together, disk)
    waiting = await queue(together, [(100, "a"), (100, "b")], [(101, "c")])
    assert together.waiting == 2
    disk.let.set()
    await asyncio.gather(*lanes, *waiting)

    assert together.waiting == 0
    assert groups == [*[1] * LANES, 3]
    assert set(said) == {"nobody's"}
