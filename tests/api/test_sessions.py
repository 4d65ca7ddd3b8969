"""Conversations over HTTP: the list, the turns, a run's turn, and deletion."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.api.conftest import Api
from tests.api.projects import two_projects
from tests.contract.moments import Moments
from tests.projecting import DatabaseProjection, projecting
from tracer.records.events import Event
from tracer.storage.postgres import ProjectPool, connection_options, open_pool, postgres_writer

SESSIONS = ("conv-7781", "user/7 ü?#", "a%2Fb", "مرحبا", "a+b&c=d", "turn")


async def say(api: Api, session: str, at: int, **more: Any) -> Moments:
    run = Moments()
    events: list[Event] = [
        run.plan_started(at, session_id=session, user_request=f"question {at}", **more),
        run.plan_finished(at + 1, summary=f"answer {at}"),
    ]
    assert (await api.writer.write(events)).refused == []
    return run


async def test_conversations_of_any_session_id_are_listed_read_and_deleted(
    api: Api, database_url: str
) -> None:
    for number, session in enumerate(SESSIONS):
        await say(api, session, 100 * number)
        await say(api, session, 100 * number + 10)
    await DatabaseProjection(connection_options(database_url)).link()

    listed = (await api.get("/api/sessions")).json()["items"]
    assert [each["sessionId"] for each in listed] == [*reversed(SESSIONS)]
    assert [each["turns"] for each in listed] == [2] * len(SESSIONS)
    for number, session in enumerate(SESSIONS):
        path = f"/api/sessions/{quoted(session)}"
        read = (await api.get(path)).json()
        questions = [f"question {100 * number + at}" for at in (0, 10)]
        assert [each["question"] for each in read["turns"]] == questions
        assert read["sessionId"] == session
        assert read["conversation"] == listed[len(SESSIONS) - 1 - number]
        deleted = await api.client.delete(path)
        assert (deleted.json()["runs"], deleted.json()["left"]) == (2, 0)
        assert (await api.get(path)).status_code == 404
    assert (await api.get("/api/sessions")).json()["items"] == []


def quoted(session: str) -> str:
    return quote(session, safe="")


async def test_place_of_a_run_in_its_conversation(api: Api) -> None:
    first, second = await say(api, "s", 0), await say(api, "s", 10)
    alone = Moments()
    await api.writer.write([alone.plan_started()])

    assert (await api.get(f"/api/runs/{first.root}/turn")).json() == {
        **{"sessionId": "s", "turn": 1, "turns": 2},
        **{"previousId": None, "nextId": str(second.root)},
    }
    assert (await api.get(f"/api/runs/{alone.root}/turn")).json() == {
        **{"sessionId": None, "turn": 1, "turns": 1, "previousId": None, "nextId": None},
    }
    assert (await api.get(f"/api/runs/{Moments().root}/turn")).status_code == 404


async def test_wrong_cursor_and_unknown_session_are_refused(api: Api) -> None:
    await say(api, "s", 0)

    assert (await api.get("/api/sessions?cursor=x")).json()["code"] == "bad_cursor"
    assert (await api.get("/api/sessions/s?cursor=x")).json()["code"] == "bad_cursor"
    assert (await api.get("/api/sessions?q=word")).json()["items"] == []
    assert (await api.get("/api/sessions/unknown")).json()["code"] == "not_found"
    assert (await api.client.delete("/api/sessions/unknown")).json()["runs"] == 0


async def test_equal_session_ids_of_two_projects_never_mix(
    database_url: str, tmp_path: Path
) -> None:
    async with two_projects(database_url, tmp_path) as doors, open_pool(database_url) as pool:
        for project in (doors.home, doors.other):
            run = Moments()
            writer = postgres_writer(ProjectPool(pool, project.project_id))
            start = run.plan_started(session_id="same", user_request=project.canary)
            await writer.write([start])
        await DatabaseProjection(pool.kwargs).link()
        for project in (doors.home, doors.other):
            doors.client.headers["Authorization"] = f"Bearer {project.secret}"
            read = (await doors.client.get("/api/sessions/same")).json()
            assert [each["question"] for each in read["turns"]] == [project.canary]
        async with projecting(database_url, doors.other.project_id):
            deleted = await doors.client.delete("/api/sessions/same")
        assert deleted.json()["runs"] == 1
        doors.client.headers["Authorization"] = f"Bearer {doors.home.secret}"
        read = (await doors.client.get("/api/sessions/same")).json()
        assert [each["question"] for each in read["turns"]] == [doors.home.canary]
