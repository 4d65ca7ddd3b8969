"""The state of a session is stored, and concurrent changes are never lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.stores import clock
from tests.profiles import scaled
from tracer.errors import StateConflict
from tracer.records import new_id, sequential_ids
from tracer.records.sessions import (
    MAX_SESSION_ID_BYTES,
    MAX_SESSION_RUNS,
    MAX_STATE_BYTES,
    MemorySessions,
    SessionStates,
    State,
    StateChange,
)
from tracer.redaction import standard_redaction
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.project_stores import PostgresSessions

NewSessions = Callable[[], SessionStates]
_projects = count(1)


@pytest.fixture(params=["memory", "postgres"])
async def new_sessions(request: pytest.FixtureRequest) -> AsyncIterator[NewSessions]:
    """Answers the sessions of a project of their own."""
    if request.param == "memory":
        yield MemorySessions
    else:
        async with open_pool(request.getfixturevalue("database_url")) as pool:
            yield lambda: PostgresSessions(ProjectPool(pool, next(_projects)), clock())


@pytest.fixture
def sessions(new_sessions: NewSessions) -> SessionStates:
    return new_sessions()


def visit(number: int = 1) -> StateChange:
    return StateChange("increment", ("visits",), number)


async def test_five_concurrent_increments_add_five(sessions: SessionStates) -> None:
    await asyncio.gather(*(sessions.change_state("s", {}, [visit()]) for _ in range(5)))
    assert await sessions.read_state("s", {}) == {"visits": 5}


async def test_fifty_concurrent_changes_of_all_kinds_are_all_applied(
    sessions: SessionStates,
) -> None:
    def changes(number: int) -> list[StateChange]:
        return [
            visit(number),
            StateChange("append", ("log", "numbers"), number),
            StateChange("set", ("last",), number),
            StateChange("set", ("by", str(number)), True),
            StateChange("remove", ("by", str(number - 1))),
        ]

    answers = await asyncio.gather(
        *(sessions.change_state("s", {"by": {"me": 1}}, changes(n)) for n in range(50))
    )
    state = await sessions.read_state("s", {})
    order = state["log"]["numbers"]
    assert sorted(order) == list(range(50))
    assert state["visits"] == sum(range(50))
    assert state["last"] == order[-1]
    left = {str(n) for n in range(50) if n + 1 not in order[order.index(n) :]}
    assert state["by"] == {"me": 1} | dict.fromkeys(left, True)
    by_length = sorted(answers, key=lambda answer: len(answer["log"]["numbers"]))
    assert by_length[-1] == state
    assert [answer["last"] for answer in by_length] == order


async def test_only_one_of_20_concurrent_compare_and_set_changes_succeeds(
    sessions: SessionStates,
) -> None:
    outcomes = await asyncio.gather(
        *(
            sessions.change_state(
                "s", {}, [visit(), StateChange("compare_and_set", ("winner",), n)]
            )
            for n in range(20)
        ),
        return_exceptions=True,
    )
    [won] = [outcome for outcome in outcomes if isinstance(outcome, dict)]
    assert [type(each) for each in outcomes if each is not won] == [StateConflict] * 19
    assert await sessions.read_state("s", {}) == won
    assert won["visits"] == 1


async def test_change_of_session_state_with_a_conflict_changes_nothing(
    sessions: SessionStates,
) -> None:
    misfit = StateChange("append", ("name",), 1)
    with pytest.raises(StateConflict):
        await sessions.change_state("s", {"name": "first"}, [visit(), misfit])
    assert await sessions.read_state("s", {"none": "yet"}) == {"none": "yet"}
    await sessions.change_state("s", {"name": "second"}, [visit()])
    with pytest.raises(StateConflict):
        await sessions.change_state("s", {}, [visit(), misfit])
    assert await sessions.read_state("s", {}) == {"name": "second", "visits": 1}


async def test_change_that_makes_the_session_state_too_large_is_rejected(
    sessions: SessionStates,
) -> None:
    part = StateChange("append", ("parts",), "x" * (MAX_STATE_BYTES // 2))
    await sessions.change_state("s", {}, [part])
    with pytest.raises(StateConflict, match="must not exceed"):
        await sessions.change_state("s", {}, [part])
    assert len((await sessions.read_state("s", {}))["parts"]) == 1


async def test_session_state_reads_return_copies_and_store_nothing(sessions: SessionStates) -> None:
    initial = {"list": [1]}
    (await sessions.read_state("s", initial))["list"].append(2)
    assert initial == {"list": [1]}
    assert await sessions.read_state("s", {"other": 1}) == {"other": 1}
    (await sessions.change_state("s", initial, []))["list"].append(2)
    (await sessions.read_state("s", {}))["list"].append(2)
    assert await sessions.read_state("s", {}) == {"list": [1]}
    assert initial == {"list": [1]}


async def test_session_state_is_separate_per_session_id_and_project(
    new_sessions: NewSessions,
) -> None:
    one, other = new_sessions(), new_sessions()
    await one.change_state("s", {}, [visit()])
    for sessions, session_id in ((one, "S"), (one, ""), (one, "s "), (other, "s")):
        assert await sessions.read_state(session_id, {}) == {}


async def test_session_ids_with_unstorable_characters_stay_distinct(
    sessions: SessionStates,
) -> None:
    ids = ["\0", "␛0000", "␛241b0000", "\ud800", "␛d800", "字", "'; DROP TABLE run; --", "%s"]
    for number, session_id in enumerate(ids, 1):
        await sessions.change_state(session_id, {}, [visit(number)])
    for number, session_id in enumerate(ids, 1):
        assert await sessions.read_state(session_id, {}) == {"visits": number}


async def test_session_id_that_is_too_long_is_rejected(sessions: SessionStates) -> None:
    longest = "".join(chr(0x4E00 + n) for n in range(666))
    await sessions.change_state(longest, {}, [visit()])
    for ask in (sessions.read_state(longest * 2, {}), sessions.change_state(longest * 2, {}, [])):
        with pytest.raises(StateConflict, match="id"):
            await ask


@settings(max_examples=scaled(50))
@given(
    # Not what a secret is called: Hypothesis takes texts from our own source, too.
    text=st.text(st.characters(codec=None), max_size=10).filter(
        lambda text: standard_redaction().rule_of(text) is None
    ),
    # Not the number of a card, which is masked.
    number=(st.integers() | st.floats(allow_nan=False, allow_infinity=False)).filter(
        lambda number: standard_redaction().value(f"[{number}]") == f"[{number}]"
    ),
)
async def test_text_and_numbers_in_session_state_are_read_back_unchanged(
    new_sessions: NewSessions, text: str, number: float
) -> None:
    sessions = new_sessions()
    state: State = {text: [text, {text: number}]}
    assert await sessions.read_state(text, state) == state
    changed = await sessions.change_state(text, state, [StateChange("set", ("more", text), text)])
    assert changed == state | {"more": {text: text}}
    assert await sessions.read_state(text, {}) == changed


async def test_changes_by_two_connection_pools_to_one_session_are_all_applied(
    database_url: str,
) -> None:
    async with open_pool(database_url) as one, open_pool(database_url) as other:
        stores = [PostgresSessions(ProjectPool(one)), PostgresSessions(ProjectPool(other))]
        await asyncio.gather(*(stores[n % 2].change_state("s", {}, [visit()]) for n in range(16)))
        assert await stores[0].read_state("s", {}) == {"visits": 16}


async def test_runs_of_a_session_are_returned_oldest_first(new_sessions: NewSessions) -> None:
    one, other = new_sessions(), new_sessions()
    ids = sequential_ids()
    runs = [ids() for _ in range(3)]
    found = [await one.add_run("s", {}, run) for run in runs]
    assert found == [runs[:0], runs[:1], runs[:2]]
    for sessions, session_id in ((one, "S"), (other, "s")):
        assert await sessions.add_run(session_id, {}, runs[0]) == []


async def test_session_keeps_only_its_newest_runs(sessions: SessionStates) -> None:
    runs = [new_id() for _ in range(MAX_SESSION_RUNS + 5)]
    for run in runs:
        earlier = await sessions.add_run("s", {}, run)
    assert earlier == runs[-MAX_SESSION_RUNS:-1]


async def test_concurrent_runs_of_a_session_are_all_added(sessions: SessionStates) -> None:
    runs = {new_id() for _ in range(20)}
    await asyncio.gather(*(sessions.add_run("s", {}, run) for run in runs))
    assert set(await sessions.add_run("s", {}, new_id())) == runs


async def test_adding_a_run_and_changing_the_session_state_are_independent(
    sessions: SessionStates,
) -> None:
    first, second = new_id(), new_id()
    await sessions.add_run("s", {"visits": 1}, first)
    assert await sessions.change_state("s", {"visits": 7}, [visit()]) == {"visits": 2}
    assert await sessions.add_run("s", {"visits": 9}, second) == [first]
    assert await sessions.read_state("s", {}) == {"visits": 2}


async def test_adding_a_run_to_a_session_with_a_too_long_id_is_rejected(
    sessions: SessionStates,
) -> None:
    with pytest.raises(StateConflict, match="id"):
        await sessions.add_run("x" * (MAX_SESSION_ID_BYTES + 1), {}, new_id())
