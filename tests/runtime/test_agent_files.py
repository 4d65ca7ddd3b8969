"""Agents are read from a file, and its errors are reported together."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tracer.errors import RegistrationError
from tracer.runtime import Agent
from tracer.runtime.agent_files import read_agents
from tracer.runtime.scripted_model import ScriptedModel
from tracer.tools import hooks_of

FILE = "agents.yaml"


def _agents(folder: Path, text: str, **given: Any) -> tuple[Agent, ...]:
    path = folder / FILE
    path.write_text(text, encoding="utf-8")
    return read_agents(path, **given)


def _problems(folder: Path, text: str, **given: Any) -> list[str]:
    with pytest.raises(RegistrationError) as caught:
        _agents(folder, text, **given)
    return str(caught.value).split("\n- ")[1:]


async def hold_back(next: Any, arguments: Any) -> Any:
    return await next(arguments)


def greedy(everything: Any) -> Any: ...


def test_agents_file_in_the_form_of_the_seed_document_is_read(tmp_path: Path) -> None:
    [agent] = _agents(tmp_path, "blood_pressure_agent:\n  tools:\n    - record_blood_pressure\n")

    assert (agent.name, agent.tools) == ("blood_pressure_agent", ("record_blood_pressure",))
    assert (agent.instructions, agent.model, agent.tool_hooks) == ("", None, ())
    assert (agent.max_rounds, agent.max_parallel) == (Agent.max_rounds, Agent.max_parallel)


def test_agents_have_the_fields_and_order_of_the_file(tmp_path: Path) -> None:
    model = ScriptedModel([])

    nurse, doctor = _agents(
        tmp_path,
        """
        nurse:
          description: measures
          instructions: |
            Measure.
            Today is {current_date}.
          tools: [measure, weigh]
          model: careful
          max_rounds: 5
          max_parallel: 2
          resolve_in_context: false
          tool_hooks: [hold_back, "operator:itemgetter"]
        doctor: {}
        """,
        models={"careful": model},
        tool_hooks={"hold_back": hold_back, "operator:itemgetter": hold_back},
    )

    assert (nurse.description, nurse.tools) == ("measures", ("measure", "weigh"))
    assert nurse.instructions == "Measure.\nToday is {current_date}.\n"
    assert (nurse.resolve_in_context, doctor.resolve_in_context) == (False, True)
    assert nurse.model is model
    assert (nurse.max_rounds, nurse.max_parallel) == (5, 2)
    assert [each.name for each in hooks_of(nurse.tool_hooks)] == ["hold_back", "hold_back"]
    assert (doctor.name, doctor.tools) == ("doctor", ())


def test_agents_file_names_a_hook_as_module_and_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clinic_hooks.py").write_text("def first(arguments):\n    return arguments\n")
    monkeypatch.syspath_prepend(tmp_path)

    [agent] = _agents(tmp_path, "nurse: {tool_hooks: ['clinic_hooks:first']}")

    assert [each.name for each in hooks_of(agent.tool_hooks)] == ["first"]


def test_agents_file_within_a_package_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "clinic_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / FILE).write_text("nurse: {tools: [measure]}")
    monkeypatch.syspath_prepend(tmp_path)

    [agent] = read_agents(files("clinic_package") / FILE)

    assert agent.tools == ("measure",)


def test_all_problems_are_reported_together_with_their_places(tmp_path: Path) -> None:
    problems = _problems(
        tmp_path,
        """
        nurse:
          max_round: 5
          max_parallel: 0
          tools: measure
        doctor: [measure]
        clerk:
          tool_hooks: [hold_bak, "nowhere:hook"]
        7: {}
        """,
        tool_hooks={"hold_back": hold_back},
    )

    assert [each.partition(": ")[0] for each in problems] == [
        "nurse.tools",
        "nurse.max_parallel",
        "nurse.max_round",
        "doctor",
        "clerk.tool_hooks.0",
        "clerk.tool_hooks.1",
        "7.[key]",
    ]
    assert problems[0].endswith("Input should be a valid list.")
    assert "Choose from: hold_back." in problems[4]
    assert "'nowhere:hook' cannot be imported" in problems[5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("porter: {model: carefull}", "the unknown model 'carefull'. Choose from: careful."),
        ("clerk: {tool_hooks: [greedy]}", "A hook may have the parameters next, function"),
        ("guard: {tools: [open, open]}", "guard"),
    ],
)
def test_agent_that_cannot_be_made_is_rejected(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        _agents(
            tmp_path, text, models={"careful": ScriptedModel([])}, tool_hooks={"greedy": greedy}
        )

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "location", "key"),
    [
        ("nurse: {}\ndoctor: {}\nnurse: {}\n", "line 3, column 1", "nurse"),
        ("nurse:\n  tools: [a]\n  tools: [b]\n", "line 3, column 3", "tools"),
        ("nurse: {tools: [a], 'tools': [b]}\n", "line 1, column 21", "tools"),
    ],
)
def test_duplicate_key_is_rejected(tmp_path: Path, text: str, location: str, key: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        _agents(tmp_path, text)

    repeated = f"the key {key!r} is repeated, {location}"
    assert str(caught.value) == f"{FILE} is not valid YAML: {repeated}."


def test_yaml_merge_keys_can_be_overridden(tmp_path: Path) -> None:
    text = "nurse: &nurse {tools: [a], max_rounds: 3}\nchief:\n  <<: *nurse\n  max_rounds: 9\n"

    nurse, chief = _agents(tmp_path, text)

    assert (nurse.tools, nurse.max_rounds) == (("a",), 3)
    assert (chief.tools, chief.max_rounds) == (("a",), 9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "should be a valid dictionary"),
        ("- nurse\n", "should be a valid dictionary"),
        ("nurse: [\n", "is not valid YAML: "),
        ("nurse: !!python/object/apply:os.getcwd []\n", "is not valid YAML: could not determine"),
        ("nurse: {}\n---\nnurse: {}\n", "is not valid YAML: but found another document, line 2"),
        ("nurse: \x00\n", "is not valid YAML: "),
    ],
)
def test_file_that_is_not_a_mapping_is_rejected(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RegistrationError, match=f"^{FILE} ") as caught:
        _agents(tmp_path, text)

    assert said in str(caught.value)


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="cannot be read"):
        read_agents(tmp_path / FILE)


_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
_entries = st.fixed_dictionaries(
    {},
    optional={
        "description": _text,
        "instructions": _text,
        "tools": st.lists(_text, max_size=4, unique=True),
        "max_rounds": st.integers(1, 100),
        "max_parallel": st.integers(1, 100),
    },
)


@given(wanted=st.dictionaries(_text.filter(bool), _entries, min_size=1, max_size=4))
def test_agents_equal_their_yaml_entries(tmp_path: Path, wanted: dict[str, dict[str, Any]]) -> None:
    agents = _agents(tmp_path, yaml.safe_dump(wanted, sort_keys=False))

    assert [each.name for each in agents] == list(wanted)
    for agent, entry in zip(agents, wanted.values(), strict=True):
        for name, value in entry.items():
            found = getattr(agent, name)
            assert (list(found) if name == "tools" else found) == value
