"""The spool: its limits and permissions, unchanged events, and recovery from damaged files."""

import asyncio
import os
import sqlite3
import stat
import tempfile
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from tests.recorder.plans import plan_started, plans_started
from tests.recorder.stores import CommandedStore
from tracer.recorder import Recorder, Spool
from tracer.recorder.spool import spool_failure
from tracer.records import Status, new_id
from tracer.records.events import Event, PlanStarted, ThoughtRecorded, ThoughtStarted


@pytest.fixture
def recorder(store: CommandedStore, spool: Spool) -> Recorder:
    """A closed recorder: it stamps events, and what it is given goes to the spool."""
    return Recorder(store, spool)


def content(path: Path) -> bytes:
    return path.read_bytes()


async def held(spool: Spool) -> list[Event | None]:
    return [event for _, event in await spool.oldest(10_000)]


async def test_spool_returns_events_unchanged_and_in_order(
    recorder: Recorder, spool: Spool
) -> None:
    run, step = new_id(), new_id()
    events: list[Event] = [
        plan_started(recorder, title="NUL \0, surrogate \ud800, ␛0000, 血压, 🩺 and \u2028"),
        ThoughtStarted(
            **recorder.stamp(),
            root_plan_id=run,
            plan_id=run,
            step_id=step,
            think_act_id=new_id(),
            position=0,
            messages='[{"a": 1.50}]',
        ),
        ThoughtRecorded(
            **recorder.stamp(),
            root_plan_id=run,
            plan_id=run,
            step_id=step,
            think_act_id=new_id(),
            status=Status.SUCCEEDED,
            cost_usd=Decimal("0.000000000001"),
        ),
    ]
    await spool.append(events)

    assert await held(spool) == events


async def test_ids_of_removed_events_are_never_reused(recorder: Recorder, spool: Spool) -> None:
    first = (await spool.append(plans_started(recorder, 2))).ids
    await spool.remove(first)
    event = plan_started(recorder)
    await spool.append([event])
    await spool.remove(first)

    assert await held(spool) == [event]


async def test_spool_reads_are_limited_by_count_and_bytes(recorder: Recorder, spool: Spool) -> None:
    large = [plan_started(recorder, title="x" * 5 * 2**20) for _ in range(3)]
    await spool.append([*plans_started(recorder, 5), *large])

    assert len(await spool.oldest(4)) == 4
    assert len(await spool.oldest(4, skip=2)) == 4
    assert len(await spool.oldest(100)) == 7, "8 MiB are reached with the second large event"
    assert await spool.oldest(100, skip=8) == []


async def test_only_the_owner_can_read_the_spool_file(
    recorder: Recorder, spool: Spool, spool_path: Path
) -> None:
    await spool.append([plan_started(recorder)])

    assert stat.S_IMODE(spool_path.parent.stat().st_mode) == 0o700
    files = sorted(spool_path.parent.iterdir())
    assert [file.name for file in files] == ["events.db", "events.db-shm", "events.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_delivered_events_leave_no_content_in_the_spool_file(
    recorder: Recorder, spool: Spool, spool_path: Path
) -> None:
    kept = (await spool.append([plan_started(recorder, title="hypertension" * 5000)])).ids
    await spool.remove(kept)
    await spool.close()

    assert [file.name for file in spool_path.parent.iterdir()] == ["events.db"]
    assert b"hypertension" not in content(spool_path)
    assert len(content(spool_path)) < 20_000


async def test_full_spool_stores_what_fits_and_returns_the_rest(
    recorder: Recorder, spool_path: Path
) -> None:
    spool = Spool(spool_path, max_bytes=200_000)
    small = plans_started(recorder, 10)
    large = plan_started(recorder, title="x" * 300_000)
    appended = await spool.append([*small[:5], large, *small[5:]])

    assert len(appended.ids) == 10
    assert [event for event, _ in appended.rejected] == [large]
    assert await held(spool) == small


async def test_full_spool_accepts_events_again_after_delivery(
    recorder: Recorder, spool_path: Path
) -> None:
    spool = Spool(spool_path, max_bytes=200_000)
    for _ in range(20):
        appended = await spool.append([plan_started(recorder, title="x" * 20_000)])
    assert appended.rejected
    await spool.remove([spool_id for spool_id, _ in await spool.oldest(100)])

    assert (await spool.append([plan_started(recorder, title="x" * 100_000)])).rejected == []
    await spool.close()
    assert len(content(spool_path)) <= 200_000


async def test_events_that_a_full_spool_rejects_are_counted_and_logged(
    store: CommandedStore, spool_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder(store, Spool(spool_path, max_bytes=100_000)) as recorder:
        store.down = True
        events = [plan_started(recorder, title="secret" * 5000) for _ in range(10)]
        for event in events:
            await recorder.record(event)
        counts = recorder.counts

        assert counts.spooled + counts.dropped == 10
        assert 0 < counts.spooled < 10
        assert "secret" not in str([vars(record) for record in caplog.records])
        dropped = [each for each in caplog.records if "events_dropped" in each.message]
        assert len(dropped) == counts.dropped


async def test_only_the_event_that_cannot_be_encoded_is_dropped(
    recorder: Recorder, spool: Spool
) -> None:
    good, bad = plan_started(recorder), plan_started(recorder)
    object.__setattr__(bad, "title", "\ud800")  # as no validation would let it
    appended = await spool.append([bad, good])

    assert [event for event, _ in appended.rejected] == [bad]
    assert await held(spool) == [good]


@pytest.mark.parametrize("damage", ["no database", "torn pages", "a directory", "read-only"])
async def test_recording_continues_with_any_damage_of_the_spool_file(
    damage: str, store: CommandedStore, spool: Spool, spool_path: Path
) -> None:
    store.down = True
    recorder = Recorder(store, spool)
    await recorder.record(*plans_started(recorder, 500))
    await spool.close()
    damage_file(spool_path, damage)
    event = plan_started(recorder)
    async with recorder:
        await recorder.record(event)
        found = await held(spool) if damage in ("no database", "torn pages") else []

        assert event in found or recorder.counts.dropped > 0
        if damage == "no database":
            [aside] = spool_path.parent.glob("events.db.corrupted-*")
            assert aside.read_bytes().startswith(b"not a database")
            assert found == [event]
        store.down = False
        await recorder.record(plan_started(recorder))


def damage_file(path: Path, damage: str) -> None:
    size = path.stat().st_size
    if damage == "cut short":
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        os.truncate(path, 5000)
    elif damage == "no database":
        path.write_bytes(b"not a database" * 1000)
    elif damage == "torn pages":
        with path.open("r+b") as file:
            file.seek(100)
            file.write(os.urandom(size - 100))
    else:
        path.unlink()
        if damage == "a directory":
            path.mkdir()
        else:
            path.parent.rmdir()
            path.parent.write_bytes(b"a file where the directory should be")


async def test_spool_damaged_while_open_is_moved_aside(
    store: CommandedStore, spool: Spool, spool_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(store, spool)
    await recorder.record(*plans_started(recorder, 500))
    damage_file(spool_path, "cut short")
    event = plan_started(recorder)
    await spool.append([event])

    assert await held(spool) == [event]
    assert "spool_corrupted" in caplog.text


async def test_truncated_spool_log_loses_only_its_tail(
    recorder: Recorder, spool: Spool, spool_path: Path, tmp_path: Path
) -> None:
    """What the disk holds after the machine died within a write."""
    first, second = plans_started(recorder, 2)
    await spool.append([first])
    await spool.append([second])
    copy = copy_files(spool_path, tmp_path, log_bytes_lost=100)

    assert await held(Spool(copy)) == [first]


def copy_files(path: Path, directory: Path, log_bytes_lost: int) -> Path:
    copy = directory / "copy.db"
    copy.write_bytes(content(path))
    Path(f"{copy}-wal").write_bytes(content(Path(f"{path}-wal"))[:-log_bytes_lost])
    return copy


async def test_invalid_event_in_the_spool_is_dropped_and_others_are_delivered(
    store: CommandedStore, spool: Spool, spool_path: Path
) -> None:
    recorder = Recorder(store, spool)
    first, second = plans_started(recorder, 2)
    await recorder.record(first)
    with closing(sqlite3.connect(spool_path)) as database, database:
        database.execute("INSERT INTO event (id, body) VALUES (randomblob(16), 'no event')")
    await recorder.record(second)
    async with recorder:
        await store.holds([first, second])

    assert await spool.count() == 0
    assert recorder.counts.dropped == 1


async def test_several_processes_can_share_a_spool_file(
    recorder: Recorder, spool_path: Path
) -> None:
    """Use several spools of one process, since SQLite locks per connection."""
    # SQLite's lock has no queue: on a slow disk, one spool may wait for long.
    spools = [Spool(spool_path, busy_seconds=60) for _ in range(6)]
    events: list[PlanStarted] = plans_started(recorder, 60)
    await asyncio.gather(*(spools[index % 6].append([event]) for index, event in enumerate(events)))

    found = await held(spools[0])
    assert len(found) == 60
    assert all(event in found for event in events)
    await asyncio.gather(*(spool.close() for spool in spools))


def test_error_for_an_unwritable_spool_folder_says_what_to_do() -> None:
    root, user = os.geteuid(), os.geteuid() or 65534  # root may write everywhere

    with tempfile.TemporaryDirectory() as home:  # which other users may enter, unlike `tmp_path`
        Path(home).chmod(0o555)
        os.seteuid(user)
        try:
            said = spool_failure(Path(home) / "spool" / "x.sqlite3", "PermissionError")
        finally:
            os.seteuid(root)

    assert f"{home} cannot be written by the user {user}" in said
    assert f"chown -R {user} {home}" in said
