"""Links between runs: which earlier run a run continues, derived from what the runs claim.

A claim is what a run itself states about its origin: the ids of calls and runs that it continues,
and keys that it shares with them. All functions are pure. They give the same result whatever the
order in which the runs arrived (decision 34).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from uuid import UUID

from tracer.records import ABANDONED, Status

SAME_CALL = "the provider's id of the call"
SAME_AGENT = "the id of the agent that the call set to work"
IN_ORDER = "the order in which background agents ended and prompts began"
SHARED_CLAIM = "a run that follows the same call or run"
SHARED_WORK = "a run with the same work key"
SURROUNDING = "the only agent of the session at this time"
"""The evidence for links that were inferred."""


@dataclass(frozen=True)
class LinkableCall:
    """A tool call that other runs may continue."""

    tool_call_id: UUID
    key: str | None = None
    """The provider call id."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    agent_key: str | None = None
    """The emitter's id of the agent that the call set to work."""
    agent_end_sequence: int | None = None
    """The number of the event of the session with which this agent ended in the background."""

    def evidence(self, key: str) -> str | None:
        """Return why a run that claims `key` continues this call; None if it does not."""
        return SAME_CALL if self.key == key else SAME_AGENT if self.agent_key == key else None


@dataclass(frozen=True)
class LinkableRun:
    """A run with its claims, and with the calls that other runs may continue."""

    root_plan_id: UUID
    started_at: datetime
    """If it has no start, when it was recorded."""
    ended_at: datetime | None = None
    """None while it is running. An abandoned run ended with its last record."""
    session_id: str | None = None
    has_agent: bool = True
    """Whether it contains an agent or a workflow."""
    is_bare: bool = False
    """Whether it consists of model calls and tool calls outside of any agent."""
    follows_calls: Collection[UUID] = ()
    follows_runs: Collection[UUID] = ()
    follows_keys: Collection[str] = ()
    work_keys: Collection[str] = ()
    prompt_sequence: int | None = None
    """The number of the event of the session with which a prompt of unknown text began."""
    prompt_number: int | None = None
    """The number of this prompt among those of its process."""
    calls: Sequence[LinkableCall] = ()

    @property
    def order(self) -> tuple[datetime, UUID]:
        """A run can only continue runs of a lesser order, so links form no circle."""
        return self.started_at, self.root_plan_id


@dataclass(frozen=True)
class Candidate:
    """A run or a call that another run may continue."""

    continued_run_id: UUID | None
    """None if no run has the claimed call."""
    tool_call_id: UUID | None = None
    is_link: bool = False
    """Whether the run continues it. Otherwise it is one of several, missing, or it began later."""
    inferred_from: str | None = None
    """The evidence; None if the run named the id of this run or call."""


@dataclass(frozen=True)
class Links:
    """What a run continues."""

    candidates: tuple[Candidate, ...] = ()
    continues_run_id: UUID | None = None
    head_id: UUID | None = None
    """The first run of the chain; None if the run continues nothing."""
    is_inside: bool = False
    """Whether it began before the call or run that it continues had ended."""


def link_runs(runs: Iterable[LinkableRun]) -> dict[UUID, Links]:
    """Return the links of each run of a project. Deleted runs must be left out."""
    in_order = sorted(runs, key=lambda run: run.order)
    heads: dict[UUID, UUID] = {}
    links: dict[UUID, Links] = {}
    for run in in_order:
        found = links[run.root_plan_id] = links_of(run, in_order, heads)
        heads[run.root_plan_id] = found.head_id or run.root_plan_id
    return links


@dataclass(frozen=True)
class _Target:
    run: LinkableRun
    call: LinkableCall | None = None

    @property
    def order(self) -> tuple[datetime, UUID]:
        if self.call is None:
            return self.run.order
        return self.call.started_at or self.run.started_at, self.call.tool_call_id

    @property
    def ended_at(self) -> datetime | None:
        # A call without an end lasted until its run ended.
        return (self.call and self.call.ended_at) or self.run.ended_at

    def precedes(self, run: LinkableRun) -> bool:
        return self.run.order < run.order and self.order < run.order

    def candidate(self, is_link: bool, inferred_from: str | None = None) -> Candidate:
        call_id = self.call.tool_call_id if self.call is not None else None
        return Candidate(self.run.root_plan_id, call_id, is_link, inferred_from)


def links_of(run: LinkableRun, others: Sequence[LinkableRun], heads: Mapping[UUID, UUID]) -> Links:
    """Return the links of one run.

    Args:
        run: The run.
        others: Other runs: all that have a call, a key or an id that the run claims, or an agent at
            the time of the run, sorted by `order`. Further runs make no difference.
        heads: The heads of the runs that started earlier.
    """
    earlier = [each for each in others if each.order < run.order]
    of_session = [
        each for each in earlier if run.session_id is not None and each.session_id == run.session_id
    ]
    found = [
        *_by_ids(run, others, earlier),
        *_by_keys(run, of_session, heads),
        *_by_work(run, of_session),
        *_in_order(run, of_session),
        *_around(run, of_session),
    ]
    candidates = tuple(candidate for _, candidate in found)
    linked = [target for target, candidate in found if target and candidate.is_link]
    if not linked:
        return Links(candidates)
    latest = max(linked, key=lambda target: target.order)
    end = latest.ended_at
    return Links(
        candidates,
        latest.run.root_plan_id,
        heads[latest.run.root_plan_id],
        is_inside=end is None or run.started_at < end,
    )


_Found = Iterator[tuple[_Target | None, Candidate]]


def _by_ids(
    run: LinkableRun, others: Sequence[LinkableRun], earlier: Sequence[LinkableRun]
) -> _Found:
    for call_id in sorted(run.follows_calls):
        targets = [
            _Target(each, call)
            for each in others
            if each.root_plan_id != run.root_plan_id
            for call in each.calls
            if call.tool_call_id == call_id
        ]
        yield from ((each, each.candidate(each.precedes(run))) for each in targets)
        if not targets:
            sharing = [each for each in earlier if call_id in each.follows_calls]
            yield from _earliest(sharing, SHARED_CLAIM, call_id)
            if not sharing:
                yield None, Candidate(None, call_id)
    for run_id in sorted({*run.follows_runs} - {run.root_plan_id}):
        target = next((_Target(each) for each in others if each.root_plan_id == run_id), None)
        if target is None:
            sharing = [each for each in earlier if run_id in each.follows_runs]
            yield from _earliest(sharing, SHARED_CLAIM)
        is_link = target is not None and target.precedes(run)
        yield target, Candidate(run_id, None, is_link)


def _by_keys(
    run: LinkableRun, of_session: Sequence[LinkableRun], heads: Mapping[UUID, UUID]
) -> _Found:
    for key in sorted(run.follows_keys):
        latest: dict[UUID, _Target] = {}
        for each in of_session:
            targets = [_Target(each, call) for call in each.calls if call.evidence(key)]
            targets = [target for target in targets if target.precedes(run)]
            if targets:
                latest[each.root_plan_id] = max(targets, key=lambda target: target.order)
        is_one_work = len({heads[run_id] for run_id in latest}) == 1
        last = max(latest.values(), key=lambda target: target.order, default=None)
        for target in latest.values():
            assert target.call is not None
            evidence = target.call.evidence(key)
            yield target, target.candidate(is_one_work and target is last, evidence)
        if not latest:
            sharing = [each for each in of_session if key in each.follows_keys]
            yield from _earliest(sharing, SHARED_CLAIM)


def _by_work(run: LinkableRun, of_session: Sequence[LinkableRun]) -> _Found:
    for key in sorted(run.work_keys):
        yield from _earliest([each for each in of_session if key in each.work_keys], SHARED_WORK)


def _earliest(sharing: Sequence[LinkableRun], evidence: str, call_id: UUID | None = None) -> _Found:
    if sharing:
        first = _Target(min(sharing, key=lambda each: each.order))
        yield first, Candidate(first.run.root_plan_id, call_id, True, evidence)


def _in_order(run: LinkableRun, of_session: Sequence[LinkableRun]) -> _Found:
    """Yield the call of the background agent whose end a prompt of unknown text reports.

    A coding agent reports the ends of background agents in their order, each with a prompt. A
    prompt that finds no such end is a person's. Numbers count within one process of the session,
    which knows nothing of earlier ones. After a missing number, nothing is inferred until a prompt
    finds no end: the missing prompt may have reported any of them.
    """
    if run.prompt_sequence is None or run.prompt_number is None:
        return
    ends: list[tuple[int, UUID, _Target]] = []
    last, is_complete = 0, True
    for each in (*of_session, run):
        if each.prompt_sequence is None or each.prompt_number is None:
            continue
        if each.prompt_number <= last:  # a new process
            ends, last = [], 0
            is_complete = True
        is_complete &= each.prompt_number == last + 1
        last = each.prompt_number
        found = heappop(ends)[2] if ends and ends[0][0] < each.prompt_sequence else None
        if each is run:
            if found is not None and is_complete:
                yield found, found.candidate(found.precedes(run), IN_ORDER)
            return
        is_complete |= found is None
        for call in each.calls:
            if call.agent_end_sequence is not None:
                end = call.agent_end_sequence, call.tool_call_id, _Target(each, call)
                heappush(ends, end)


def _around(run: LinkableRun, of_session: Sequence[LinkableRun]) -> _Found:
    if not run.is_bare:
        return
    end = run.ended_at or run.started_at
    around = [
        each
        for each in of_session
        if each.has_agent and (each.ended_at is None or end <= each.ended_at)
    ]
    # Two are enough to notice that one of several disappears.
    for each in sorted(around, key=lambda each: each.order)[:2]:
        target = _Target(each)
        yield target, target.candidate(len(around) == 1, SURROUNDING)


# --- The status of a whole piece of work, from the statuses of its parts.


@dataclass(frozen=True)
class Part:
    """A run of a piece of work: the head, or a run that continues another one."""

    root_plan_id: UUID
    started_at: datetime
    status: str
    """The status as shown."""
    continues_run_id: UUID | None = None
    is_inside: bool = False


def whole_status(parts: Collection[Part]) -> str | None:
    """Return the status of the whole; None if it has no part beside the head."""
    if len(parts) < 2:
        return None
    if any(part.status != ABANDONED and not Status(part.status).is_ending for part in parts):
        return Status.RUNNING.value
    continued = {part.continues_run_id for part in parts}
    if any(part.status == ABANDONED and part.root_plan_id not in continued for part in parts):
        return ABANDONED
    after = [part for part in parts if not part.is_inside]
    return max(after, key=lambda part: (part.started_at, part.root_plan_id)).status
