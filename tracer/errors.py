"""What can go wrong, as one tree.

    TracerError
    ├─ RecordNotFound        no such record in this project
    ├─ BadRequest            what was asked cannot be: the sentence says what to do
    │  └─ BadCursor
    ├─ StoreUnavailable      the store did not answer; asking again later may help
    ├─ SchemaOutOfDate       the database lacks migrations
    ├─ ConfigurationError    a setting is missing or wrong
    ├─ ToolError             a tool's refusal or failure, told to the model
    │  ├─ InvalidArguments
    │  └─ UnknownTool
    ├─ LineageError          a call or plan without its place in the lineage
    │  ├─ MissingToolCallId
    │  ├─ DepthLimitReached
    │  └─ PlanCycle
    ├─ PlanningError         the planner's answer was no usable plan
    ├─ ModelError            the model could not be asked, or answered unusably
    └─ RunNotActive          the run has ended already

They know nothing of HTTP; `api/problems.py` maps each to a status and a stable code. The
docstring of a class is its message where none is given.
"""

from __future__ import annotations


class TracerError(Exception):
    """Something went wrong in Tracer."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class RecordNotFound(TracerError):
    """There is no such record in this project."""

    def __init__(self, kind: str, record_id: object) -> None:
        super().__init__(f"There is no {kind} with the id {str(record_id)!r} in this project.")
        self.kind = kind
        self.record_id = record_id


class BadRequest(TracerError):
    """What was asked cannot be done as asked."""


class BadCursor(BadRequest):
    """The cursor is not one of ours. Pass on `nextCursor` as it came, or start without one."""


class StoreUnavailable(TracerError):
    """The store does not answer. Check that the database runs and try again."""


class SchemaOutOfDate(TracerError):
    """The database's schema is not the one that this version needs. Run `tracer migrate`."""


class ConfigurationError(TracerError):
    """A setting is missing or wrong."""


class ToolError(TracerError):
    """The tool failed. Its message goes to the model and into the record."""

    reason: str = "tool_error"
    """One of `tracer.status.Reason`, as text: errors stand below it."""


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema."""

    reason = "invalid_arguments"


class UnknownTool(ToolError):
    """There is no such tool."""

    reason = "unknown_tool"


class LineageError(TracerError):
    """A call or a plan has no sound place in the lineage."""

    reason: str = "internal_error"


class MissingToolCallId(LineageError):
    """The tool context carries no toolcallId: a sub-plan must know the call that opens it."""


class DepthLimitReached(LineageError):
    """Sub-plans are nested as deep as allowed already."""

    reason = "depth_limit"


class PlanCycle(LineageError):
    """A plan on the path to here is running with the same arguments already."""

    reason = "cycle"


class PlanningError(TracerError):
    """The planner's answer is no usable plan."""


class ModelError(TracerError):
    """The model could not be asked, or its answer could not be used."""


class RunNotActive(TracerError):
    """The run has ended already: there is nothing left to cancel."""
