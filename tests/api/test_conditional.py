"""Conditional requests: unchanged responses are not sent again."""

from __future__ import annotations

from tests.api.conftest import Api
from tests.contract.moments import Moments
from tests.sample_runs import SampleRun, sample_run
from tracer.records import new_id


def paths(run: SampleRun) -> dict[str, str]:
    return {
        "run": f"/api/runs/{run.root}",
        "plan": f"/api/plans/{run.sub_plans[0]}",
        "tree": f"/api/plans/{run.root}/tree",
        "part of a tree": f"/api/plans/{run.sub_plans[0]}/tree?depth=1&payloads=none",
        "tool call": f"/api/tool-calls/{run.failed_call}",
        "think-act": f"/api/think-acts/{run.think_act}",
        "diff": f"/api/runs/{run.root}/diff/{run.root}",
    }


async def asked(api: Api, path: str, tag: str) -> tuple[int, bytes, str]:
    answer = await api.client.get(path, headers={"If-None-Match": tag})
    return answer.status_code, answer.content, answer.headers["ETag"]


async def test_unchanged_resource_gets_304_until_it_changes(api: Api) -> None:
    run = sample_run(sub_plans=1)
    await api.writer.write(run.events[:-1])
    tags = {}
    for name, path in paths(run).items():
        first = await api.get(path)
        tags[name] = tag = first.headers["ETag"]

        assert first.headers["Cache-Control"] == "private, no-cache", name
        for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
            assert await asked(api, path, known) == (304, b"", tag), (name, known)
        assert (await asked(api, path, '"other"'))[:2] == (200, first.content), name
    await api.writer.write(run.events[-1:])
    for name, path in paths(run).items():
        status, _, now = await asked(api, path, tags[name])
        assert (status, now == tags[name]) == (200, False), name


async def test_etag_of_the_first_run_changes_when_a_part_joins_changes_or_leaves(api: Api) -> None:
    first, part = Moments(), Moments()
    await api.writer.write([first.plan_started(), first.plan_finished()])
    ways = [f"/api/runs/{first.root}", f"/api/plans/{first.root}/tree"]

    async def tags() -> list[str]:
        await api.projection.link()
        return [(await api.get(way)).headers["ETag"] for way in ways]

    seen = [await tags()]
    await api.writer.write([part.plan_started(20, follows_runs=(first.root,))])
    seen.append(await tags())
    await api.writer.write([part.step_started(21)])
    seen.append(await tags())
    await api.writer.delete_run(part.root)
    seen.append(await tags())

    assert [len({*each}) for each in zip(*seen, strict=True)] == [4, 4]
    assert await tags() == seen[-1]


async def test_each_path_and_query_has_a_different_etag(api: Api) -> None:
    run = await api.record(sample_run())
    tree = f"/api/plans/{run.root}/tree"
    ways = [*paths(run).values(), *(f"{tree}?payloads={p}" for p in ("none", "full", "digest"))]
    ways += [f"{tree}?depth=1", f"{tree}?depth=2"]

    tags = [(await api.get(way)).headers["ETag"] for way in ways]

    assert len(set(tags)) == len(ways)


async def test_deleted_run_gets_404_even_with_a_known_etag(api: Api) -> None:
    run = await api.record(sample_run())
    tag = (await api.get(f"/api/runs/{run.root}")).headers["ETag"]
    await api.writer.delete_run(run.root)

    for path in (f"/api/runs/{run.root}", f"/api/plans/{new_id()}/tree"):
        answer = await api.client.get(path, headers={"If-None-Match": tag})
        assert answer.status_code == 404
