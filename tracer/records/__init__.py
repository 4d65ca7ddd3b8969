"""Values of a recording: ids, kinds and states of records, and what is computed from them alone.

Everything here is a plain value or a pure function. Nothing does I/O, and nothing knows a store, a
server or OpenTelemetry. A field of a record is defined in `record_classes` only; tables, schemas
and merge rules derive from this definition. The face has the names that all code uses.

Public modules, one for each subject:

- `record_classes`: the records of a run, one class for each kind
- `events`: what recorders send
- `merge`: the rules that make records of events
- `spans`: spans and log records, independent of their encoding
- `span_records`: the record that each span of a run belongs to
- `results`: endings of work, and results and errors as text
- `arguments`: arguments of tool calls as values
- `conversation`: messages of a model call in one form
- `sessions`: the state of a conversation
- `prices`: prices of model calls
- `pages`: what lists and statistics return
- `access`: keys, scopes and settings of projects
- `masks`: the texts in place of secrets and of payloads that are not stored
"""

from tracer.records.ids import (
    DEFAULT_PROJECT,
    DEFAULT_PROJECT_ID,
    IdSource,
    new_id,
    sequential_ids,
    span_id,
)
from tracer.records.record_classes import Kind, Run
from tracer.records.status import (
    ABANDONED,
    DEFAULT_TERMS,
    MAX_DELAY,
    Lease,
    LeaseTerms,
    Reason,
    Status,
)

__all__ = [
    "ABANDONED",
    "DEFAULT_PROJECT",
    "DEFAULT_PROJECT_ID",
    "DEFAULT_TERMS",
    "MAX_DELAY",
    "IdSource",
    "Kind",
    "Lease",
    "LeaseTerms",
    "Reason",
    "Run",
    "Status",
    "new_id",
    "sequential_ids",
    "span_id",
]
