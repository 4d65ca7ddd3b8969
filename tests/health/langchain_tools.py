"""The twelve tools of design note 001 as LangChain tools: each takes the caller's token first."""

from __future__ import annotations

import json

from langchain_core.tools import BaseTool, tool

from health.diary import Diary, Entry
from health.tables import BLOOD_PRESSURE, HEALTH_EVENT, MEDICATION, SYMPTOM


def langchain_tools(diary: Diary) -> list[BaseTool]:
    """Return the tools over a diary."""

    @tool
    async def record_blood_pressure(
        token_id: str,
        systolic: int,
        diastolic: int,
        heart_rate: int | None = None,
        notes: str | None = None,
    ) -> str:
        """Record a blood pressure reading."""
        reading = {"systolic": systolic, "diastolic": diastolic, "heart_rate": heart_rate}
        entry = {**reading, "record_time": diary.clock(), "notes": notes}
        return _json(await diary.add(BLOOD_PRESSURE, _user_id(token_id), entry))

    @tool
    async def query_blood_pressure(token_id: str, limit: int = 10, offset: int = 0) -> str:
        """Return the blood pressure readings, newest first."""
        user_id = _user_id(token_id)
        return _json(await diary.find(BLOOD_PRESSURE, user_id, limit=limit, offset=offset))

    @tool
    async def update_blood_pressure(
        token_id: str, record_id: int, systolic: int | None = None, diastolic: int | None = None
    ) -> str:
        """Correct a blood pressure reading."""
        changes = {"systolic": systolic, "diastolic": diastolic}
        return _json(await diary.change(BLOOD_PRESSURE, _user_id(token_id), record_id, changes))

    @tool
    async def record_health_event(
        token_id: str, event_type: str, event_name: str, notes: str | None = None
    ) -> str:
        """Record a health event."""
        event = {"event_type": event_type, "event_name": event_name}
        entry = {**event, "event_time": diary.clock(), "notes": notes}
        return _json(await diary.add(HEALTH_EVENT, _user_id(token_id), entry))

    @tool
    async def query_health_event(token_id: str, limit: int = 10, offset: int = 0) -> str:
        """Return the health events, newest first."""
        user_id = _user_id(token_id)
        return _json(await diary.find(HEALTH_EVENT, user_id, limit=limit, offset=offset))

    @tool
    async def update_health_event(token_id: str, record_id: int, notes: str) -> str:
        """Correct a health event."""
        changes = {"notes": notes}
        return _json(await diary.change(HEALTH_EVENT, _user_id(token_id), record_id, changes))

    @tool
    async def record_medication(
        token_id: str, medication_name: str, dosage: str, frequency: str | None = None
    ) -> str:
        """Record a medication."""
        medication = {
            "medication_name": medication_name,
            "dosage": dosage,
            "frequency": frequency,
            "record_time": diary.clock(),
            "notes": None,
        }
        return _json(await diary.add(MEDICATION, _user_id(token_id), medication))

    @tool
    async def query_medication(token_id: str, limit: int = 10, offset: int = 0) -> str:
        """Return the medication, newest first."""
        user_id = _user_id(token_id)
        return _json(await diary.find(MEDICATION, user_id, limit=limit, offset=offset))

    @tool
    async def update_medication(token_id: str, record_id: int, dosage: str) -> str:
        """Correct a medication."""
        changes = {"dosage": dosage}
        return _json(await diary.change(MEDICATION, _user_id(token_id), record_id, changes))

    @tool
    async def record_symptom(token_id: str, symptom_name: str, severity: str | None = None) -> str:
        """Record a symptom."""
        symptom = {"symptom_name": symptom_name, "severity": severity}
        entry = {**symptom, "record_time": diary.clock(), "notes": None}
        return _json(await diary.add(SYMPTOM, _user_id(token_id), entry))

    @tool
    async def query_symptom(token_id: str, limit: int = 10, offset: int = 0) -> str:
        """Return the symptoms, newest first."""
        user_id = _user_id(token_id)
        return _json(await diary.find(SYMPTOM, user_id, limit=limit, offset=offset))

    @tool
    async def update_symptom(token_id: str, record_id: int, severity: str) -> str:
        """Correct a symptom."""
        changes = {"severity": severity}
        return _json(await diary.change(SYMPTOM, _user_id(token_id), record_id, changes))

    return [
        record_blood_pressure,
        query_blood_pressure,
        update_blood_pressure,
        record_health_event,
        query_health_event,
        update_health_event,
        record_medication,
        query_medication,
        update_medication,
        record_symptom,
        query_symptom,
        update_symptom,
    ]


def _user_id(token_id: str) -> str:
    """Return the user that a token stands for: in the design note, the token itself."""
    return token_id


def _json(found: Entry | list[Entry]) -> str:
    return json.dumps(found, ensure_ascii=False, default=str)
