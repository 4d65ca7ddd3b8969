"""Claude Code 2.1.332: the prompts of one piece of work are linked, with content on and off."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.otel.coding_agents.captured import Message, messages_of, projected, single
from tests.otel.coding_agents.test_claude_code import truth_run
from tests.otel.coding_agents.test_claude_code_background import NAMES, without_content
from tests.otel.projections import Projected
from tests.profiles import beginnings
from tracer.lineage.links import IN_ORDER, SAME_CALL, LinkableCall, LinkableRun, Links, link_runs
from tracer.records import Kind

CONTENTS = [
    pytest.param(name, change, id=f"{name}-{word}")
    for name in NAMES
    for word, change in (("on", single), ("off", without_content))
    # Without content, nothing says that an agent which waits for its own command has reported.
    if word == "on" or "failing" not in name
]


def linkable(run: Projected) -> LinkableRun:
    row = run.whole_run
    calls = run.records[Kind.TOOL_CALL]
    return LinkableRun(
        run.root_plan_id,
        row["started_at"],
        row["finished_at"],
        row["session_id"],
        follows_keys=row["follows_keys"],
        prompt_sequence=row["prompt_sequence"],
        prompt_number=row["prompt_number"],
        calls=[
            LinkableCall(
                call_id,
                call["provider_call_id"],
                call["started_at"],
                call["finished_at"],
                call["agent_key"],
                call["agent_end_sequence"],
            )
            for call_id, call in calls.items()
        ],
    )


def linked(runs: list[Projected]) -> dict[UUID, Links]:
    return link_runs([linkable(run) for run in runs if run.whole_run["started_at"]])


def keys_of(runs: list[Projected]) -> dict[UUID | None, str]:
    """Return the provider call id of each call."""
    return {
        call_id: call["provider_call_id"]
        for run in runs
        for call_id, call in run.records[Kind.TOOL_CALL].items()
    }


@pytest.mark.parametrize(("name", "change"), CONTENTS)
def test_each_prompt_of_a_person_begins_a_piece_of_work(
    name: str, change: Callable[[list[Message]], list[Message]]
) -> None:
    runs, truth = projected(change(messages_of(name))), truth_run(name)
    links, keys = linked(runs), keys_of(runs)
    ids = [run.root_plan_id for run in runs]

    for run_id, prompt in zip(ids, truth["prompts"], strict=True):
        head = links[run_id].head_id or run_id
        assert head == ids[prompt["user_prompt"]]
        followed = [each for each in links[run_id].candidates if each.is_link]
        assert [keys[each.tool_call_id] for each in followed] == prompt["follows"]
        evidence = IN_ORDER if change is without_content else SAME_CALL
        assert {each.inferred_from for each in followed} <= {evidence}
        assert not links[run_id].is_inside


@pytest.mark.parametrize(("name", "change"), CONTENTS)
def test_links_are_the_same_in_any_order_and_no_beginning_has_a_false_one(
    name: str, change: Callable[[list[Message]], list[Message]]
) -> None:
    messages, truth = change(messages_of(name)), truth_run(name)
    runs = projected(messages)
    expected, follows = linked(runs), {}
    for run, prompt in zip(runs, truth["prompts"], strict=True):
        follows[run.root_plan_id] = prompt["follows"]
    chance = random.Random(0)

    for other in (messages[::-1], chance.sample(messages, len(messages))):
        assert linked(projected(other)) == expected
    for end in beginnings(len(messages), 40):
        begun = projected(messages[:end])
        keys = keys_of(begun)
        for run_id, links in linked(begun).items():
            found = {keys[each.tool_call_id] for each in links.candidates if each.is_link}
            assert found <= {*follows[run_id]}


def test_prompt_is_not_linked_if_the_one_before_it_is_missing() -> None:
    """The missing prompt may have reported the first of two agents that had ended."""
    runs = projected(without_content(messages_of("claude-code-2.1.332-parallel-content-on")))
    of_all = linked(runs)
    without_second = linked([run for run in runs if run is not runs[1]])

    ids: list[Any] = [run.root_plan_id for run in runs]
    assert of_all[ids[2]].continues_run_id == ids[0]
    assert without_second[ids[2]].continues_run_id is None
