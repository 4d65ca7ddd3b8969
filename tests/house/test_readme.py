"""The README's first Python example works unchanged."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import Spool
from tracer.records.status import Status
from tracer.runtime.application import Application
from tracer.runtime.launcher import RunLauncher
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory.store import MemoryStore
from tracer.store import ToolCallFilter

README = Path(__file__).parents[2] / "README.md"


def _application(monkeypatch: pytest.MonkeyPatch) -> Application:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, object] = {"__name__": "clinic"}
    exec(compile(code[1], str(README), "exec"), names)
    application = names["application"]
    assert isinstance(application, Application)
    return application


async def test_readme_application_records_a_sub_plan_below_its_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = ScriptedModel(
        [
            Script(
                agent="doctor",
                turns=[Turn(calls=[call("check_patient", {"patient": "p-1"})]), Turn(text="Well.")],
            ),
            Script(
                agent="nurse",
                turns=[Turn(calls=[call("measure", {"patient": "p-1"})]), Turn(text="121/79")],
            ),
        ]
    )
    application = replace(_application(monkeypatch), model=model)
    store = MemoryStore()
    async with (
        Recorder(store, Spool(tmp_path / "spool.sqlite3")) as recorder,
        RunLauncher(application, recorder, store) as launcher,
    ):
        outcome = await launcher.run("How is patient p-1?", agent="doctor")

    assert (outcome.status, outcome.summary) == (Status.SUCCEEDED, "Well.")
    calls = await store.list_tool_calls(ToolCallFilter(name="check_patient"), 10, None)
    place = await store.read_tool_call(calls.items[0].tool_call_id)
    assert [plan.template for plan in place.sub_plans] == ["check_patient"]
    assert place.sub_plans[0].summary == "121/79"


def test_readme_contains_the_commands_make_demo_and_make_test() -> None:
    text = README.read_text(encoding="utf-8")

    assert "make demo" in text
    assert "make test" in text
