"""The recorder: makes events durable before the agent continues, even if the store fails.

`Recorder.record` returns when the store has committed an event, or when the spool has it on disk.
A recorder sends heartbeats while records are open, and sends spooled events when the store answers
again. `Unrecorded` has the same methods and records nothing.

Public modules:

- `spool`: the files of spools, for the `tracer spool` commands
"""

from tracer.recorder.delivery import BATCH_EVENTS, STORE_AWAY, RecorderCounts, error_location
from tracer.recorder.recorder import CLOSING_SECONDS, MAX_QUEUED, Recorder, Unrecorded, promise
from tracer.recorder.spool import Spool, no_spool, spool_for

__all__ = [
    "BATCH_EVENTS",
    "CLOSING_SECONDS",
    "MAX_QUEUED",
    "STORE_AWAY",
    "Recorder",
    "RecorderCounts",
    "Spool",
    "Unrecorded",
    "error_location",
    "no_spool",
    "promise",
    "spool_for",
]
