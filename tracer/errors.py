"""All exceptions of this package, as one tree.

    TracerError
    ├─ RecordNotFound        no such record in this project
    ├─ BadRequest            the request cannot be fulfilled; the message explains what to do
    │  ├─ AmbiguousReference a handle that several records have
    │  ├─ BadCursor
    │  ├─ TooLarge           larger than the limit of one request
    │  ├─ TooManySecrets     more secrets in one write than can be masked
    │  └─ UnknownFormat      an unsupported format
    ├─ SearchOff             the server has no search index
    ├─ TooBusy               the server is at its capacity; a retry helps
    ├─ NotIdentified         no valid key or sign-in
    ├─ NotAllowed            the key lacks the scope
    ├─ UnknownHost           the request's Host is not a name of the server
    ├─ StoreUnavailable      the store did not answer; a later retry may help
    ├─ SchemaOutOfDate       the database lacks migrations
    ├─ UnreadableData        stored data is damaged
    ├─ ConfigurationError    a setting is missing or wrong
    │  └─ RegistrationError  a tool, hook or agent is not validly defined
    ├─ ToolError             a tool failed or rejected the call; shown to the model
    │  ├─ InvalidArguments
    │  ├─ InvalidResult
    │  ├─ UnknownTool
    │  ├─ MissingIdentity    no caller is set
    │  ├─ Denied             a guard rejected the call
    │  ├─ AddressRefused     an address that tools must not access
    │  ├─ ToolUnavailable    a service that the tool needs does not answer; transient
    │  ├─ StateConflict      a change does not fit the session state
    │  └─ BudgetExhausted
    ├─ LineageError          a call or plan that has no valid parent
    │  ├─ MissingToolCallId
    │  ├─ DepthLimitReached
    │  └─ PlanCycle
    ├─ PlanningError         the planner's answer was not a valid plan
    ├─ ModelError            the model could not be reached, or its response not be used
    ├─ RunNotActive          the run has ended already
    ├─ NoApplication         the server runs no application
    └─ ApplicationUnavailable  the server's application is loading, or failed to open

The exceptions are independent of HTTP. `api/problems.py` maps each of them to a status and a
stable code. The docstring of a class is its default message.
"""

from __future__ import annotations

from typing import Self

FAILED, USAGE, NOTHING_FOUND = 1, 2, 3
"""The exit codes of commands: failed; wrong usage; nothing was found, or compared things differ."""


class TracerError(Exception):
    """An error of Tracer."""

    exit_code = FAILED
    """The exit code of a command that ends with this error."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class RecordNotFound(TracerError):
    """The record does not exist in this project."""

    exit_code = NOTHING_FOUND

    def __init__(self, kind: str, record_id: object, message: str | None = None) -> None:
        attribute = {"tool": "name", "price": "model"}.get(kind, "id")
        super().__init__(
            message
            or f"There is no {kind} with the {attribute} {str(record_id)!r} in this project. "
            f"Check the {attribute}; it may be of another project, or the {kind} was deleted."
        )
        self.kind = kind
        self.record_id = record_id
        self.run_path: str | None = None
        """The path in the API of the run that may have had the record."""

    def in_run(self, path: str) -> Self:
        """Add the path of the run that may have had the record, and return this error."""
        self.args = (
            f"There is no {self.kind} with the id {str(self.record_id)!r} in this project. A later "
            f"projection may have replaced it. Look for it in its run, {path}.",
        )
        self.run_path = path
        return self


class BadRequest(TracerError):
    """The request cannot be fulfilled."""


class AmbiguousReference(BadRequest):
    """Several records have this handle."""

    exit_code = USAGE

    def __init__(self, reference: str, matches: list[tuple[str, object]]) -> None:
        records = ", ".join(f"{kind} {record_id}" for kind, record_id in matches)
        super().__init__(f"{reference!r} may mean several records. Use an id: {records}.")


class BadCursor(BadRequest):
    """The cursor is invalid. Send `nextCursor` of the previous page unchanged, or none."""


class TooLarge(BadRequest):
    """The request is too large. Send it in several parts."""


class TooManySecrets(BadRequest):
    """The request contains more secrets than can be masked. Send it in several parts."""


class UnknownFormat(BadRequest):
    """The format is not supported."""


class SearchOff(TracerError):
    """This server has no search index: check TRACER_SEARCH_DIR, and that projectors run here."""


class TooBusy(TracerError):
    """The server is processing as many requests as it can. Send the request again later."""


class NotIdentified(TracerError):
    """Authentication is required: send `Authorization: Bearer KEY`, or sign in with a browser."""


class NotAllowed(TracerError):
    """The key or the sign-in does not allow this."""


class UnknownHost(TracerError):
    """The server does not have this name. Use its address, or add the name to TRACER_HOSTS."""


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
    """The database's schema does not match this version of Tracer. Run `tracer migrate`."""


class UnreadableData(TracerError):
    """The stored data is damaged. Restore it from a backup."""


class ConfigurationError(TracerError):
    """A setting is missing or invalid."""


class RegistrationError(ConfigurationError):
    """A tool, a hook or an agent is not validly defined."""


class ToolError(TracerError):
    """The tool failed. The message is shown to the model and recorded."""

    reason: str = "tool_error"
    """One of `tracer.records.status.Reason`, as text, because this module must not import it."""
    may_pass: bool = False
    """Whether the error is transient, so that a retry may succeed."""
    max_characters: int | None = None
    """If the message is longer, only its beginning and its end are shown, together this many
    characters. Hidden values are removed first, because a cut value would not be recognised."""


class InvalidArguments(ToolError):
    """The arguments do not match the tool's schema."""

    reason = "invalid_arguments"


class InvalidResult(ToolError):
    """The tool's result does not match its declared schema."""

    reason = "invalid_result"


class UnknownTool(ToolError):
    """The tool does not exist."""

    reason = "unknown_tool"


class MissingIdentity(ToolError):
    """The tool requires a caller, but none is set."""

    reason = "missing_identity"


class IdentityUnavailable(ToolError):
    """The caller's token could not be looked up. Try again later."""

    reason = "identity_unavailable"


class Denied(ToolError):
    """The call is not allowed. Continue without it."""

    reason = "denied"


class AddressRefused(ToolError):
    """Tools must not access this address."""

    reason = "address_refused"


class ToolUnavailable(ToolError):
    """A service that the tool needs does not answer. Try again later."""

    reason = "unavailable"
    may_pass = True

    def __init__(self, message: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """How many seconds to wait, as the service requested; None if it requested nothing."""


class StateConflict(ToolError):
    """The session state does not have the expected value. None of the changes were stored."""

    reason = "state_conflict"


class BudgetExhausted(ToolError):
    """The run's budget is used up."""

    reason = "budget_exhausted"


class LineageError(TracerError):
    """A call or a plan has no valid parent in the lineage."""

    reason: str = "internal_error"


class MissingToolCallId(LineageError):
    """The tool context has no tool-call id, so a sub-plan cannot refer to its opener."""


class DepthLimitReached(LineageError):
    """Sub-plans are nested as deeply as allowed."""

    reason = "depth_limit"


class PlanCycle(LineageError):
    """This plan has opened itself with the same arguments, directly or indirectly."""

    reason = "cycle"


class PlanningError(TracerError):
    """The planner's answer is not a valid plan."""


class ModelError(TracerError):
    """The model could not be reached, or its response could not be used."""


class RunNotActive(TracerError):
    """The run has ended already, so it cannot be cancelled."""


class NoApplication(TracerError):
    """This server runs no application. Set TRACER_APP to MODULE:NAME and restart the server."""


class ApplicationUnavailable(TracerError):
    """The server's application is loading. Send the request again later."""


# --- Name the extra that a feature needs and that is not installed.


def missing_extra(feature: str, extras: str, cause: ImportError) -> ImportError:
    """Return the error for a feature whose extra is not installed.

    Args:
        feature: The name or the command that needs the extra.
        extras: The extra; several are separated by commas.
        cause: The error of the import that failed.
    """
    return ImportError(f"{what_to_install(feature, extras)} ({cause})", name=cause.name)


def what_to_install(feature: str, extras: str) -> str:
    """Return a sentence that names the extras of a feature, and the command that installs them."""
    names = " and ".join(f"`{each}`" for each in extras.split(","))
    noun = "extras" if "," in extras else "extra"
    return f"`{feature}` needs the {noun} {names}: pip install 'tracer-lineage[{extras}]'"
