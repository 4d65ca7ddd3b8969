"""Projection: convert the spans of a run to records.

`project_run` is a pure function of the set of a run's spans and log records: neither their order
nor the requests that brought them matter. If a change alters the rows of any trace, raise
`PROJECTION_VERSION`, so that stored runs are projected again. `span_records` returns the
record that each span belongs to.
"""

from tracer.otel.projection.project import (
    PROJECTED_FIELDS,
    PROJECTION_VERSION,
    RUN_FIELDS,
    ProjectedRun,
    Row,
    fields_of,
    fields_of_run,
    project_run,
    span_records,
    totals_of,
)

__all__ = [
    "PROJECTED_FIELDS",
    "PROJECTION_VERSION",
    "RUN_FIELDS",
    "ProjectedRun",
    "Row",
    "fields_of",
    "fields_of_run",
    "project_run",
    "span_records",
    "totals_of",
]
