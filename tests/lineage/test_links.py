"""Which run continues which: the rule, as a function of a set of runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.lineage.links import (
    SAME_AGENT,
    SURROUNDING,
    LinkableCall,
    LinkableRun,
    Links,
    Part,
    link_runs,
    whole_status,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def run(number: int, start: float, end: float | None = None, **fields: Any) -> LinkableRun:
    session = {"session_id": "s"}
    return LinkableRun(
        UUID(int=number), at(start), None if end is None else at(end), **session | fields
    )


def call(number: int, start: float | None, end: float | None = None, key: str | None = None) -> Any:
    begin, finish = (None if each is None else at(each) for each in (start, end))
    return LinkableCall(UUID(int=number), key, begin, finish)


def links_of(number: int, *runs: LinkableRun) -> Links:
    links = link_runs(runs)
    assert links == link_runs(runs[::-1])  # the order of arrival makes no difference
    return links[UUID(int=number)]


def continued(number: int, *runs: LinkableRun) -> int | None:
    run_id = links_of(number, *runs).continues_run_id
    return None if run_id is None else run_id.int


FIRST = run(1, 0, 10, calls=(call(11, 2, 3, key="c1"),))


@pytest.mark.parametrize(
    "claim", [{"follows_calls": [UUID(int=11)]}, {"follows_runs": [FIRST.root_plan_id]}]
)
def test_run_that_names_an_id_continues_it_in_any_session(claim: dict[str, Any]) -> None:
    second = run(2, 20, session_id="other", **claim)

    [candidate] = links_of(2, FIRST, second).candidates

    assert continued(2, FIRST, second) == 1
    assert (candidate.is_link, candidate.inferred_from) == (True, None)


def test_key_links_within_its_session_only() -> None:
    assert continued(2, FIRST, run(2, 20, follows_keys=["c1"])) == 1
    assert continued(2, FIRST, run(2, 20, follows_keys=["c1"], session_id="other")) is None
    nameless = run(1, 0, 10, calls=FIRST.calls, session_id=None)
    assert continued(2, nameless, run(2, 20, follows_keys=["c1"], session_id=None)) is None


def test_claim_that_points_forward_is_a_candidate_and_no_link() -> None:
    early = run(2, -5, follows_calls=[UUID(int=11)])

    assert links_of(2, FIRST, early).candidates[0].continued_run_id == FIRST.root_plan_id
    assert continued(2, FIRST, early) is None
    assert continued(2, FIRST, run(2, 1, follows_keys=["c1"])) is None  # the call began later


def test_runs_that_began_together_are_ordered_by_id() -> None:
    first, second = run(1, 0, follows_runs=[UUID(int=2)]), run(2, 0, follows_runs=[UUID(int=1)])

    assert (continued(1, first, second), continued(2, first, second)) == (None, 1)


def test_key_of_several_calls_links_to_the_last_if_they_have_one_head() -> None:
    again = run(2, 12, 14, calls=(call(21, 13, 14, key="c1"),))
    third = run(3, 20, follows_keys=["c1"])

    assert continued(3, FIRST, again, third) is None
    assert len(links_of(3, FIRST, again, third).candidates) == 2
    part = run(2, 12, 14, calls=again.calls, follows_runs=[UUID(int=1)])
    assert continued(3, FIRST, part, third) == 2


def test_two_runs_that_follow_one_missing_call_are_one_work() -> None:
    for claim in ({"follows_keys": ["gone"]}, {"follows_calls": [UUID(int=99)]}):
        assert continued(3, run(2, 12, **claim), run(3, 20, **claim)) == 2


def test_runs_with_one_work_key_continue_the_earliest() -> None:
    runs = [run(number, number, work_keys=["p"]) for number in (1, 2, 3)]

    assert [continued(number, *runs) for number in (1, 2, 3)] == [None, 1, 1]


def test_bare_run_continues_the_only_agent_around_it() -> None:
    bare = run(2, 5, 6, is_bare=True, has_agent=False)

    assert continued(2, FIRST, bare) == 1
    assert links_of(2, FIRST, bare).candidates[0].inferred_from == SURROUNDING
    assert continued(2, FIRST, run(3, 4, 7), bare) is None
    assert continued(2, FIRST, run(3, 4, 7, has_agent=False, is_bare=True), bare) == 1
    assert continued(2, run(1, 0, None), bare) == 1  # it is still running
    assert continued(2, run(1, 0, 5.5), bare) is None


def test_head_is_the_first_run_of_a_chain() -> None:
    second = run(2, 20, 22, follows_keys=["c1"])
    third = run(3, 30, follows_runs=[UUID(int=2)])

    assert links_of(3, FIRST, second, third).head_id == UUID(int=1)
    assert links_of(1, FIRST, second, third).head_id is None


def test_part_is_inside_if_it_began_before_its_call_ended() -> None:
    claim: dict[str, Any] = {"follows_calls": [UUID(int=11)]}

    assert links_of(2, FIRST, run(2, 2.5, **claim)).is_inside
    assert not links_of(2, FIRST, run(2, 4, **claim)).is_inside
    assert links_of(2, FIRST, run(2, 4, follows_runs=[UUID(int=1)])).is_inside
    without_end = run(1, 0, 10, calls=(call(11, 2),))
    assert links_of(2, without_end, run(2, 4, **claim)).is_inside


def test_several_targets_lead_to_the_latest() -> None:
    other = run(3, 5, 9, session_id="other")
    both = run(2, 20, follows_keys=["c1"], follows_runs=[UUID(int=3)])

    assert continued(2, FIRST, other, both) == 3
    assert [each.is_link for each in links_of(2, FIRST, other, both).candidates] == [True, True]


@given(st.permutations(range(1, 7)), st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6))))
def test_links_form_no_circle(starts: list[int], claims: list[tuple[int, int]]) -> None:
    runs = [
        run(number, start, follows_runs=[UUID(int=to) for by, to in claims if by == number])
        for number, start in enumerate(starts, 1)
    ]
    links = link_runs(runs)
    for each in runs:
        chain = [each.root_plan_id]
        while (above := links[chain[-1]].continues_run_id) is not None:
            chain.append(above)
            assert len(chain) <= len(runs)
        assert links[each.root_plan_id].head_id == (chain[-1] if chain[1:] else None)


def part(number: int, status: str, continues: int | None = 1, *, is_inside: bool = False) -> Part:
    above = None if continues is None else UUID(int=continues)
    return Part(UUID(int=number), at(number), status, above, is_inside)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([part(2, "failed")], "failed"),
        ([part(2, "running")], "running"),
        ([part(2, "unknown")], "running"),
        ([part(2, "abandoned")], "abandoned"),
        ([part(2, "abandoned"), part(3, "succeeded", 2)], "succeeded"),
        ([part(2, "abandoned"), part(3, "running", 2)], "running"),
        ([part(2, "failed", is_inside=True)], "succeeded"),
        ([part(3, "cancelled"), part(2, "failed")], "cancelled"),
        ([], None),
    ],
)
def test_whole_status_is_that_of_the_last_part(parts: list[Part], whole: str | None) -> None:
    assert whole_status([part(1, "succeeded", None), *parts]) == whole


# --- Prompts of unknown text, in the order of their session's events.


def prompt(
    number: int,
    sequence: int,
    process_number: int | None,
    *ends: int,
    start: float | None = None,
    **fields: Any,
) -> LinkableRun:
    """Return a run that set agents to work, which ended in the background with events `ends`."""
    begin = float(sequence) if start is None else start
    calls = [
        LinkableCall(UUID(int=end), None, at(begin), at(begin), f"agent-{end}", end) for end in ends
    ]
    return run(
        number,
        begin,
        begin + 1,
        prompt_sequence=sequence,
        prompt_number=process_number,
        calls=calls,
        **fields,
    )


def followed(*runs: LinkableRun) -> list[int | None]:
    """Return the call that each run continues."""
    links = link_runs(runs)
    assert links == link_runs(runs[::-1])
    candidates = [links[each.root_plan_id].candidates for each in runs]
    return [next((c.tool_call_id.int for c in each if c.tool_call_id), None) for each in candidates]


def test_prompts_report_the_agents_in_the_order_in_which_these_ended() -> None:
    runs = prompt(1, 4, 1, 34, 32), prompt(2, 35, 2), prompt(3, 36, 3), prompt(4, 37, 4)

    assert followed(*runs) == [None, 32, 34, None]


def test_prompt_reports_no_agent_that_ends_later() -> None:
    assert followed(prompt(1, 4, 1, 30), prompt(2, 20, 2), prompt(3, 31, 3)) == [None, None, 30]


def test_prompt_of_a_new_process_reports_no_agent_of_an_earlier_one() -> None:
    runs = prompt(1, 4, 1, 10), prompt(2, 20, 1, 30, start=100), prompt(3, 31, 2, start=101)

    assert followed(*runs) == [None, None, 30]


def test_nothing_is_inferred_after_a_missing_prompt_until_all_ended_agents_are_reported() -> None:
    first = prompt(1, 4, 1, 10, 11)
    rest = prompt(3, 20, 3), prompt(4, 21, 4), prompt(5, 22, 5, 30), prompt(6, 31, 6)

    assert followed(first, *rest) == [None, None, None, None, 30]
    assert followed(first, prompt(2, 19, 2), *rest) == [None, 10, 11, None, None, 30]


def test_nothing_is_inferred_for_a_prompt_whose_number_is_unknown() -> None:
    runs = prompt(1, 4, 1, 10, 11), prompt(2, 20, None), prompt(3, 21, 3)

    assert followed(*runs) == [None, None, None]


def test_prompts_of_another_session_are_not_counted() -> None:
    other = prompt(2, 10, 2, session_id="other")

    assert followed(prompt(1, 4, 1, 9), other, prompt(3, 11, 2)) == [None, None, 9]


def test_claim_by_the_id_of_an_agent_links_to_the_call_that_set_it_to_work() -> None:
    first = prompt(1, 4, None, 10)
    second = run(2, 20, follows_keys=["agent-10"])

    [candidate] = links_of(2, first, second).candidates

    assert (candidate.tool_call_id, candidate.inferred_from) == (UUID(int=10), SAME_AGENT)
