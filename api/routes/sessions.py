"""Routes that list, read and delete conversations: the runs of one session."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import AfterValidator, BaseModel, computed_field

from api.dependencies import Administering, ProjectedReader, Reader, Writer
from api.problems import documented
from api.requests import CursorText, PageSize, Period, RootPlanId, StoredText
from api.routes.projects import ErasureSchema
from api.schemas import (
    PLAN_ID,
    OpenCallSchema,
    PricedTotals,
    RunFailureSchema,
    SearchedPageSchema,
    ShownStatus,
    read_config,
)
from tracer.records.pages import Conversation, Turn, TurnPlace, UsedTool
from tracer.store import ConversationFilter
from tracer.text import storable

# --- Schemas of conversations and turns.

_QUESTION = "My app says my plan was cancelled, but I still pay."
_ANSWER = "I could not reach the payments system."
_TOTALS: dict[str, Any] = {
    **{"inputTokens": 5120, "outputTokens": 830, "costUsd": 0.0121, "unpricedCalls": 0},
    **{"toolCalls": 14, "failedCalls": 1},
}
_CONVERSATION: dict[str, Any] = {
    **{"sessionId": "conv-7781", "question": _QUESTION, "answer": _ANSWER, "status": "failed"},
    **{"statuses": ["failed", "succeeded"], "turns": 8, "openTurns": 0, "failedTurns": 1},
    **{"firstAt": "2026-11-21T22:21:52.46Z", "lastAt": "2026-11-21T22:45:58.11Z"},
    **{"subjects": ["customer-77"], "agents": ["billing"], **_TOTALS},
}
_TURN: dict[str, Any] = {
    **{"rootPlanId": PLAN_ID, "title": "Is there news?", "question": "Is there news?"},
    **{"answer": _ANSWER, "status": "succeeded", "reason": None, "durationMs": 7412.0},
    **{"startedAt": "2026-11-21T22:45:50.7Z", "finishedAt": "2026-11-21T22:45:58.112Z"},
    **{"subject": "customer-77", "parts": 1, "agents": ["billing"], "failures": 1},
    **{"tools": [{"name": "refund", "calls": 2, "failed": 1}], "handledFailures": 1},
    **{"failure": None, "openCall": None, **_TOTALS},
}


class ConversationSchema(PricedTotals, Conversation):
    """A conversation: the pieces of work of one session, each of which is a turn."""

    model_config = read_config(**_CONVERSATION)

    status: ShownStatus
    """The status of the last turn."""
    statuses: list[ShownStatus]  # type: ignore[assignment]
    """The statuses that turns have, sorted."""


class UsedToolSchema(UsedTool):
    """A tool that a turn called, and how often."""

    model_config = read_config(name="refund", calls=2, failed=1)


class TurnSchema(PricedTotals, Turn):
    """One turn: a question, the work, and an answer."""

    model_config = read_config(**_TURN)

    status: ShownStatus
    """The status of the turn's work."""
    tools: list[UsedToolSchema]  # type: ignore[assignment]
    """The called tools, most calls first."""
    failure: RunFailureSchema | None
    """The failure that made the turn fail."""
    open_call: OpenCallSchema | None
    """The call that the turn waits for."""

    @computed_field  # type: ignore[prop-decorator]  # mypy does not support decorated properties
    @property
    def duration_ms(self) -> float | None:
        """The duration in milliseconds; null while the turn is open or has not started."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds() * 1000


class TurnsSchema(BaseModel):
    """A conversation with a page of its turns, earliest first."""

    model_config = read_config()

    session_id: str
    conversation: ConversationSchema
    """The figures of all turns."""
    turns: list[TurnSchema]
    next_cursor: str | None
    """The `cursor` of the next page; null on the last page."""


class TurnPlaceSchema(TurnPlace):
    """The place of a run in its conversation."""

    model_config = read_config(
        sessionId="conv-7781", turn=7, turns=8, previousId=PLAN_ID, nextId=None
    )


# --- Routes.

router = APIRouter(prefix="/api/sessions", tags=["runs"])

SessionId = Annotated[
    str,
    # As `StoredText`, which a path of several segments does not accept.
    AfterValidator(storable),
    Path(alias="sessionId", description="The session's id, as `sessionId` of its runs."),
]


async def _filter(
    period: Period,
    status: Annotated[
        ShownStatus | None, Query(description="A status that a turn has, as shown.")
    ] = None,
    agent: Annotated[StoredText | None, Query(description="The agent of a turn.")] = None,
    subject: Annotated[StoredText | None, Query(description="The subject of a run.")] = None,
    q: Annotated[
        StoredText | None,
        Query(description="Words that a turn contains, as in the list of runs."),
    ] = None,
) -> ConversationFilter:
    return ConversationFilter(status, agent, subject, q, period.since, period.until)


@router.get("")
async def list_sessions(
    reader: ProjectedReader,
    wanted: Annotated[ConversationFilter, Depends(_filter)],
    limit: PageSize = 50,
    cursor: CursorText = None,
) -> SearchedPageSchema[ConversationSchema]:
    """List conversations: the sessions that have a turn, last activity first.

    The time range is that of the last activity. The pages of a list have the order of its first
    page for an hour: a conversation that changes meanwhile is neither repeated nor left out.
    """
    page = await reader.list_conversations(wanted, limit, cursor)
    return SearchedPageSchema[ConversationSchema].model_validate(page)


@router.get("/{sessionId:path}", responses=documented(HTTPStatus.NOT_FOUND))
async def read_session(
    session_id: SessionId, reader: ProjectedReader, limit: PageSize = 50, cursor: CursorText = None
) -> TurnsSchema:
    """Read a conversation, with its turns in the order of their starts.

    A turn is a piece of work: a run that continues no other one, with the runs that continue it.
    """
    page = await reader.read_conversation(session_id, limit, cursor)
    return TurnsSchema.model_validate(page)


@router.delete("/{sessionId:path}", responses=documented(HTTPStatus.NOT_FOUND))
async def delete_session(
    session_id: SessionId, writer: Writer, caller: Administering
) -> ErasureSchema:
    """Delete all runs of a session, the runs that continue them, and the session's states.

    If events or spans of these runs arrive later, they are rejected. The response contains the
    numbers of deleted rows, and the number of rows that remain in any table.
    """
    return ErasureSchema.model_validate(await writer.delete_session(session_id))


turn_router = APIRouter(prefix="/api/runs", tags=["runs"])


@turn_router.get("/{rootPlanId}/turn", responses=documented(HTTPStatus.NOT_FOUND))
async def find_turn(root_plan_id: RootPlanId, reader: Reader) -> TurnPlaceSchema:
    """Find the place of a run in its conversation: its number, the previous and the next turn."""
    return TurnPlaceSchema.model_validate(await reader.find_turn(root_plan_id))
