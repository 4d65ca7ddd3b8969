"""An outage of the store does not change a run; its events are stored afterwards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.runtime.busy import busy_application
from tests.runtime.runs import bench, outline
from tracer.errors import StoreUnavailable
from tracer.recorder import Recorder, Spool
from tracer.records.events import Event
from tracer.storage.memory import RecordingInMemory
from tracer.store import WriteAnswer


class StoreThatIsDown:
    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        raise StoreUnavailable

    async def renew(self, recorder_id: Any) -> Any:
        raise StoreUnavailable

    async def delete_run(self, root_plan_id: Any, *, all_parts: bool = True) -> None:
        raise StoreUnavailable

    async def delete_subject(self, subject: Any) -> Any:
        raise StoreUnavailable

    async def delete_session(self, session_id: Any) -> Any:
        raise StoreUnavailable

    async def write_spans(self, traces: Any) -> Any:
        raise StoreUnavailable

    async def request_cancel(self, root_plan_id: Any) -> Any:
        raise StoreUnavailable


async def test_run_during_an_outage_is_recorded_completely_afterwards(
    store: RecordingInMemory, tmp_path: Path
) -> None:
    async with bench(busy_application(), StoreThatIsDown(), store, tmp_path) as on:
        outcome = await on.launcher.run("Everything")
    async with Recorder(store, Spool(tmp_path / "spool.db")):
        pass  # the next process drains what it finds
    async with bench(busy_application(), store, store, tmp_path) as undisturbed:
        other = await undisturbed.launcher.run("Everything")

    assert outcome.status == other.status == "succeeded"
    assert outline(await on.tree(outcome.root_plan_id)) == outline(
        await undisturbed.tree(other.root_plan_id)
    )
