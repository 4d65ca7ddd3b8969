"""The examples of the design notes (`docs/explanation/seeds.md`)."""

from __future__ import annotations

from pathlib import Path

import psycopg

from api.main import server_parts
from health.diary import Diary
from tests.health.entries import READING
from tests.health.listening import ListeningModel
from tests.health.nurse import OTHER_PATIENT, PATIENT, CallNurse, refusal, rows
from tests.health.serving import health
from tracer.context import identity
from tracer.records import Status
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.settings import read_settings

SAID = "记录血压120/80"
USER, SESSION = "user123", "session456"

# Note 001, section 1: the tools, and what a model may give each.
NAMED = {
    "record_blood_pressure": ["systolic", "diastolic", "heart_rate", "record_time", "notes"],
    "query_blood_pressure": ["limit", "offset"],
    "update_blood_pressure": ["record_id", "systolic", "diastolic", "heart_rate", "notes"],
    "record_health_event": ["event_type", "event_name"],
    "query_health_event": ["limit", "offset"],
    "update_health_event": ["record_id"],
    "record_medication": ["medication_name", "dosage"],
    "query_medication": ["limit", "offset"],
    "update_medication": ["record_id"],
    "record_symptom": ["symptom_name", "severity"],
    "query_symptom": ["limit", "offset"],
    "update_symptom": ["record_id"],
}


async def test_seed_000_stores_a_blood_pressure_for_a_hidden_user_id(
    database_url: str, tmp_path: Path
) -> None:
    arguments = {"systolic": 120, "diastolic": 80}
    turns = [
        Turn(calls=[call("record_blood_pressure", arguments)]),
        Turn(text="已记录血压120/80。"),
    ]
    model = ListeningModel(ScriptedModel([Script(turns, request=SAID, agent="nurse")]))

    async with server_parts(read_settings(home=tmp_path), database_url, health(model)) as made:
        with identity(token_id=USER):
            outcome = await (await made.opened_launcher()).run(
                SAID, agent="nurse", session_id=SESSION
            )

    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        found = await connection.execute(
            "SELECT user_id, systolic, diastolic FROM health.blood_pressure"
        )
        readings = await found.fetchall()
        found = await connection.execute("SELECT arguments, result FROM act_tool_info")
        [(arguments, result)] = await found.fetchall()
    assert (outcome.status, outcome.summary) == (Status.SUCCEEDED, "已记录血压120/80。")
    assert readings == [(USER, 120, 80)]
    assert len(model.heard) == 2
    for heard in model.heard:
        assert "record_blood_pressure" in heard
        for hidden in (USER, "token", "user_id", "userid"):
            assert hidden not in heard.lower()
    assert USER not in f"{arguments} {result}"


def test_seed_001_registers_twelve_tools_with_their_parameters() -> None:
    registry = health().registry
    records = [
        each for each in registry if each.name.split("_", 1)[0] in ("record", "query", "update")
    ]

    assert {each.name for each in records} == set(NAMED)
    for tool in records:
        properties = tool.parameters["properties"]
        assert set(NAMED[tool.name]) <= set(properties), tool.name
        assert list(tool.hidden) == ["user_id"]
        if tool.name.startswith("query"):
            assert (properties["limit"]["default"], properties["offset"]["default"]) == (10, 0)


async def test_seed_001_rejects_an_update_of_another_users_record(
    opened: Diary, call_nurse: CallNurse
) -> None:
    reading = rows(await call_nurse("record_blood_pressure", **READING))

    refused = await call_nurse(
        "update_blood_pressure", by=OTHER_PATIENT, record_id=reading["record_id"], systolic=120
    )

    assert refused.status is Status.FAILED  # where the note's tool returned a text as its result
    assert refusal(refused)[0] == "no_such_record"
    assert rows(await call_nurse("query_blood_pressure", by=PATIENT)) == [reading]
