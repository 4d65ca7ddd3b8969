"""Damage in a spool's write-ahead log is reported, and a torn write after a crash is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recorder.plans import plan_started, plans_started
from tests.recorder.stores import CommandedStore
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import Spool
from tracer.records.events import Event

HEADER_BYTES = 32
FRAME_BYTES = 24 + 4096


@pytest.fixture
def recorder(store: CommandedStore, spool: Spool) -> Recorder:
    return Recorder(store, spool)


def content(path: Path) -> bytes:
    return path.read_bytes()


async def held(spool: Spool) -> list[Event | None]:
    return [event for _, event in await spool.oldest(10_000)]


def copy_after_kill(path: Path, change: Callable[[bytes], bytes]) -> Path:
    """Return a copy of an open spool as a killed process leaves it, with a changed log."""
    copy = path.with_name("copy.sqlite3")
    copy.write_bytes(path.read_bytes())
    log_of(copy).write_bytes(change(log_of(path).read_bytes()))
    return copy


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def copies_set_aside(path: Path) -> list[Path]:
    found = path.parent.glob(f"{path.name}.damaged-*")
    return [each for each in found if not each.name.endswith("-wal")]


def flipped(log: bytes, place: int) -> bytes:
    changed = bytearray(log)
    changed[place] ^= 0xFF
    return bytes(changed)


def damaged(log: bytes, where: str) -> bytes:
    frame = HEADER_BYTES + (len(log) - HEADER_BYTES) // FRAME_BYTES // 2 * FRAME_BYTES
    match where:
        case "header":
            return flipped(log, 0)
        case "salt of the header":
            return flipped(log, 16)
        case "salt of a frame":
            return flipped(log, frame + 8)
        case "checksum of a frame":
            return flipped(log, frame + 16)
        case "page of a frame":
            return flipped(log, frame + 24 + 100)
        case _:
            return log[:frame] + bytes(2**13) + log[frame + 2**13 :]


@pytest.mark.parametrize(
    "where",
    [
        "header",
        "salt of the header",
        "salt of a frame",
        "checksum of a frame",
        "page of a frame",
        "two zeroed blocks",
    ],
)
async def test_damaged_spool_log_is_reported_and_copied(
    where: str,
    recorder: Recorder,
    spool: Spool,
    spool_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = plans_started(recorder, 30)
    for event in events:
        await spool.append([event])
    path = copy_after_kill(spool_path, lambda log: damaged(log, where))
    bad = content(log_of(path))
    found = await held(Spool(path))

    assert len(found) < 30
    assert found == events[: len(found)]
    [line] = [each for each in caplog.messages if "spool_damaged" in each]
    [copy] = copies_set_aside(path)
    assert str(copy) in line
    assert content(log_of(copy)) == bad
    assert await held(Spool(copy)) == found


async def test_damaged_spool_log_is_reported_once(
    recorder: Recorder,
    spool: Spool,
    spool_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for event in plans_started(recorder, 10):
        await spool.append([event])
    path = copy_after_kill(spool_path, lambda log: damaged(log, "page of a frame"))
    for _ in range(2):
        again = Spool(path)
        await again.append([plan_started(recorder)])
        await again.close()

    assert caplog.text.count("spool_damaged") == 1


TORN: dict[str, Callable[[bytes], bytes]] = {
    "a byte short": lambda log: log[:-1],
    "a page short": lambda log: log[:-4096],
    "a frame short": lambda log: log[:-FRAME_BYTES],
    "the last page not written": lambda log: flipped(log, -1),
}


@pytest.mark.parametrize("how", TORN)
async def test_incomplete_transaction_in_the_spool_log_is_no_damage(
    how: str,
    recorder: Recorder,
    spool: Spool,
    spool_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = plans_started(recorder, 10)
    for event in events:
        await spool.append([event])
    path = copy_after_kill(spool_path, TORN[how])

    assert await held(Spool(path)) == events[:9]
    assert "spool_damaged" not in caplog.text
    assert copies_set_aside(path) == []


async def test_old_frames_in_a_reused_spool_log_are_no_damage(
    recorder: Recorder, spool: Spool, spool_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(30):  # 6 MB: SQLite starts the log again after 4 MiB
        await spool.append([plan_started(recorder, title="x" * 200_000)])
    path = copy_after_kill(spool_path, lambda log: log)

    assert len(content(log_of(path))) < 5_000_000
    assert await Spool(path).count() == 30
    assert "spool_damaged" not in caplog.text
