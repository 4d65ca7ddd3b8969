"""The links between runs equal the rule, whatever happened before."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings

from tests.contract.moments import Moments
from tests.profiles import scaled
from tests.storage.postgres.deletions import rows
from tests.storage.postgres.work_histories import (
    Change,
    Deleted,
    Sent,
    WorkHistory,
    histories,
    histories_of_prompts,
    prompt_of_claude_code,
    run_id,
)
from tracer.records import Status
from tracer.storage.postgres import Pool


@settings(max_examples=scaled(100))
@given(history=histories | histories_of_prompts)
async def test_links_equal_the_rule_after_any_history(pool: Pool, history: list[Change]) -> None:
    project = await WorkHistory.new(pool)

    await project.happens(history)

    assert await project.stored() == await project.expected()


@pytest.fixture
async def project(pool: Pool) -> WorkHistory:
    return await WorkHistory.new(pool)


def ids(sent: Sent) -> UUID:
    return run_id(sent.run)


async def head_of(project: WorkHistory, run: Moments) -> UUID | None:
    _, _, head_id, *_ = (await project.stored())[run.root]
    head: UUID | None = head_id
    return head


async def test_run_that_claims_a_call_before_it_arrives_is_linked_later(
    project: WorkHistory,
) -> None:
    first, second = Moments(), Moments()
    await project.writer.write([second.plan_started(20, follows_calls=(first.call,))])
    await project.link()
    assert await head_of(project, second) is None

    await project.writer.write([first.plan_started(), first.call_started()])
    await project.link()

    assert await head_of(project, second) == first.root


async def test_links_do_not_cross_projects(pool: Pool, project: WorkHistory) -> None:
    other, first, second = await WorkHistory.new(pool), Moments(), Moments()
    call = first.call_started(provider_call_id="toolu_1")
    claims: dict[str, Any] = {"follows_calls": (first.call,), "follows_keys": ("toolu_1",)}

    await other.writer.write([first.plan_started(session_id="s"), call])
    await project.writer.write([second.plan_started(20, session_id="s", **claims)])
    await project.link()

    assert await head_of(project, second) is None


async def test_deleted_head_leaves_no_link_and_its_parts_stay_together(
    pool: Pool, project: WorkHistory
) -> None:
    first, second, third = Moments(), Moments(), Moments()
    await project.writer.write([first.plan_started(), first.call_started()])
    for run, at in ((second, 20), (third, 30)):
        await project.writer.write([run.plan_started(at, follows_calls=(first.call,))])
    await project.link()
    assert await head_of(project, third) == first.root

    await project.writer.delete_run(first.root, all_parts=False)
    await project.link()

    assert await head_of(project, second) is None
    assert await head_of(project, third) == second.root
    await project.writer.delete_run(third.root)
    await project.link()
    query = "SELECT count(*) FROM run_link WHERE project_id = %s AND root_plan_id = %s"
    assert await rows(pool, query, project.project.project_id, third.root) == [(0,)]


async def test_change_of_a_link_raises_the_revision_of_its_run_only_once(
    pool: Pool, project: WorkHistory
) -> None:
    first, second = Moments(), Moments()
    await project.writer.write([first.plan_started()])
    await project.writer.write([second.plan_started(20, follows_runs=(first.root,))])
    query = "SELECT root_plan_id, revision FROM run WHERE project_id = %s"
    before = dict(await rows(pool, query, project.project.project_id))

    await project.link()

    after = dict(await rows(pool, query, project.project.project_id))
    assert after == {run: revision + 1 for run, revision in before.items()}


async def test_prompts_of_unknown_text_follow_the_order_of_their_session(
    project: WorkHistory,
) -> None:
    """A prompt that arrives late, or is deleted, changes the link of a later prompt."""
    first = prompt_of_claude_code(0, sequence=1, end_sequence=3)
    second = prompt_of_claude_code(1, sequence=4, end_sequence=5)
    third = prompt_of_claude_code(2, sequence=6, end_sequence=8)

    async def continued() -> list[UUID | None]:
        links = await project.stored()
        assert links == await project.expected()
        return [links[ids(each)][1] for each in (first, second, third) if ids(each) in links]

    await project.happens([first, third])
    assert await continued() == [None, None]
    await project.happens([second])
    assert await continued() == [None, ids(first), ids(second)]
    await project.happens([Deleted(second.run)])
    assert await continued() == [None, None]


async def test_view_of_work_has_one_row_for_the_runs_of_a_piece_of_work(
    pool: Pool, project: WorkHistory
) -> None:
    first, second, alone = Moments(), Moments(), Moments()
    await project.writer.write(
        [
            first.plan_started(title="first", session_id="s"),
            first.call_started(1),
            first.plan_finished(10),
            second.plan_started(20, title="second", follows_calls=(first.call,)),
            second.call_started(21),
            second.plan_finished(30, status=Status.FAILED),
            alone.plan_started(40, title="alone"),
        ]
    )
    await project.link()

    query = """SELECT root_plan_id, title, session_id, status, parts, duration_ms, tool_calls
        FROM trace.work WHERE project_id = %s ORDER BY began_at"""
    assert await rows(pool, query, project.project.project_id) == [
        (first.root, "first", "s", "failed", 2, 30_000, 2),
        (alone.root, "alone", None, "running", 1, None, 0),
    ]
