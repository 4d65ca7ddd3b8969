"""What can go wrong, as one tree.

    TracerError
    ├─ RecordNotFound        no such record in this project
    ├─ RecordMoved           a projection replaced the record by another
    ├─ BadRequest            what was asked cannot be: the sentence says what to do
    │  ├─ BadCursor
    │  ├─ TooLarge           more than is taken at once
    │  ├─ TooManySecrets     more secrets in one write than are masked
    │  └─ UnknownFormat      written in a way that is not read here
    ├─ TooBusy               more is asked at once than there is room for; asking again helps
    ├─ NotIdentified         nobody knows who asks
    ├─ NotAllowed            who asks may not do that
    ├─ UnknownHost           the server is asked by a name that is not its own
    ├─ TooFast               one caller asks for more than its share; asking later helps
    ├─ StoreUnavailable      the store did not answer; asking again later may help
    ├─ SchemaOutOfDate       the database lacks migrations
    ├─ ConfigurationError    a setting is missing or wrong
    │  └─ RegistrationError  a tool, hook or agent that cannot work as it is defined
    ├─ ToolError             a tool's refusal or failure, told to the model
    │  ├─ InvalidArguments
    │  ├─ InvalidResult
    │  ├─ UnknownTool
    │  ├─ MissingIdentity    nobody said who the caller is
    │  ├─ Denied             a guard's refusal
    │  ├─ AddressRefused     an address that tools may not reach
    │  ├─ ToolUnavailable    what the tool stands on does not answer; may pass
    │  ├─ StateConflict      the session's state is not what the tool took it for
    │  └─ BudgetExhausted
    ├─ LineageError          a call or plan without its place in the lineage
    │  ├─ MissingToolCallId
    │  ├─ DepthLimitReached
    │  └─ PlanCycle
    ├─ PlanningError         the planner's answer was no usable plan
    ├─ ModelError            the model could not be asked, or answered unusably
    └─ RunNotActive          the run has ended already

They know nothing of HTTP; `api/http/problems.py` maps each to a status and a stable code. The
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
        known_by = "name" if kind == "tool" else "id"
        super().__init__(
            f"There is no {kind} with the {known_by} {str(record_id)!r} in this project."
        )
        self.kind = kind
        self.record_id = record_id


class RecordMoved(TracerError):
    """A later projection replaced this record by another."""

    def __init__(self, path: str) -> None:
        """Take the path of the other record in the API."""
        super().__init__(f"A later projection of the run replaced this record. See {path}.")
        self.path = path


class BadRequest(TracerError):
    """What was asked cannot be done as asked."""


class BadCursor(BadRequest):
    """The cursor is not one of ours. Pass on `nextCursor` as it came, or start without one."""


class TooLarge(BadRequest):
    """That is more than is taken at once. Send it in several parts."""


class TooManySecrets(BadRequest):
    """The request holds more secrets than are masked in one. Send its payloads in several."""


class UnknownFormat(BadRequest):
    """It is written in a way that is not read here."""


class TooBusy(TracerError):
    """The server has as many requests in hand as it has room for. Send the same again later."""


class NotIdentified(TracerError):
    """Show a key that was not revoked: `Authorization: Bearer KEY`. A browser signs in first."""


class NotAllowed(TracerError):
    """What was shown does not allow that."""


class UnknownHost(TracerError):
    """The server is not known by that name. Use its address, or name it in TRACER_HOSTS."""


class TooFast(TracerError):
    """The key has used up its share for now. Send the same again later."""

    def __init__(self, message: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """After how many seconds there is room again."""


class StoreUnavailable(TracerError):
    """The store does not answer. Check that the database runs and try again."""

    def __init__(
        self,
        message: str | None = None,
        *,
        problem: str = "the store does not answer",
        what_to_do: str = "Check that the store runs.",
        address: str | None = None,
    ) -> None:
        super().__init__(message)
        self.problem = problem
        """The reason in a few words, such as "connection refused"."""
        self.what_to_do = what_to_do
        self.address = address
        """The store's address without credentials."""


class SchemaOutOfDate(TracerError):
    """The database's schema is not the one that this version needs. Run `tracer migrate`."""


class ConfigurationError(TracerError):
    """A setting is missing or wrong."""


class RegistrationError(ConfigurationError):
    """A tool, a hook or an agent cannot work as it is defined."""


class ToolError(TracerError):
    """The tool failed. Its message goes to the model and into the record."""

    reason: str = "tool_error"
    """One of `tracer.records.status.Reason`, as text: this module must not import it."""
    may_pass: bool = False
    """Whether another attempt may go better, where the tool allows one."""
    max_characters: int | None = None
    """How much of its message is shown: its beginning and its end. It is cut after hidden values
    were taken out: half of one would not be found."""


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema."""

    reason = "invalid_arguments"


class InvalidResult(ToolError):
    """The tool returned what it does not say that it returns."""

    reason = "invalid_result"


class UnknownTool(ToolError):
    """There is no such tool."""

    reason = "unknown_tool"


class MissingIdentity(ToolError):
    """The tool needs to know who the caller is, and nobody said so."""

    reason = "missing_identity"


class IdentityUnavailable(ToolError):
    """The caller's token could not be looked up. Try again later."""

    reason = "identity_unavailable"


class Denied(ToolError):
    """The call is not allowed. Do without it."""

    reason = "denied"


class AddressRefused(ToolError):
    """The address is one that tools may not reach."""

    reason = "address_refused"


class ToolUnavailable(ToolError):
    """What the tool stands on does not answer. Try again later."""

    reason = "unavailable"
    may_pass = True

    def __init__(self, message: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """How many seconds the other side asked to wait, where it did."""


class StateConflict(ToolError):
    """The session's state is not what the tool took it for: nothing of its changes was kept."""

    reason = "state_conflict"


class BudgetExhausted(ToolError):
    """The run has used up what it may use."""

    reason = "budget_exhausted"


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
