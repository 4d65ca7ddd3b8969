"""An adapter that records to a store in memory, for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.adapters.recording import RecordedStore, recording
from tracer.client import Tracing


@contextmanager
def installed(
    install: Callable[[Tracing], Callable[[], None]], tmp_path: Path
) -> Iterator[RecordedStore]:
    """Give the store that an adapter records to; `store.tracing` is the connection."""
    with recording(tmp_path) as (tracing, store):
        uninstall = install(tracing)
        try:
            yield store
        finally:
            uninstall()
