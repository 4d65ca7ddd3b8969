"""Placeholders in instructions: replaced, unchanged, and never shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.runs import Bench, bench, script
from tests.stepping import stepping_clock
from tracer.context import identity
from tracer.errors import ConfigurationError
from tracer.recorder import Recorder, Spool
from tracer.records import new_id
from tracer.runtime import Agent, Application
from tracer.runtime.application import Instructions
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import RecordingInMemory, recording_in_memory
from tracer.tools import ActiveRun, RunParameters, SessionState, ToolResources, tool
from tracer.tools.parameters import HIDDEN, User

TOKEN = "canary-4711-token"

STATE: dict[str, Any] = {
    "name": "Ann",
    "list": [1, "two"],
    "object": {"a": "{name}"},
    "sly": "{name} and {{token}} and {sly}",
    "empty": "",
    "nothing": None,
    "city名": "北京",
    "leak": f"a note with {TOKEN}",
    "user_id": "forged",
    "current_date": "forged",
}


def resolve(token_id: str) -> User:
    return User("ann", {"name": "Ann", "born": 1970})


async def filled(tmp_path: Path, text: str, who: str | None = TOKEN, **options: Any) -> str:
    """Return instructions as an agent gets them in a conversation with this state."""
    resources = ToolResources(initial_state=STATE, resolve_token=resolve)
    async with Recorder(recording_in_memory(), Spool(tmp_path / "spool.db")) as recorder:
        options.setdefault("session_id", "s-1")

        def scope(who: Any = None) -> ActiveRun:
            parameters = RunParameters(identity=who, **options)
            return ActiveRun(recorder, resources, new_id, parameters)

        clock = stepping_clock(datetime(2026, 3, 2, 23, 59, tzinfo=UTC))
        if who is None:
            return await Instructions(scope(), clock).filled(text)
        with identity(token_id=who) as caller:
            return await Instructions(scope(caller), clock).filled(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello {name}, {{name}}!", "Hello Ann, Ann!"),
        ("{list} {object}", '[1,"two"] {"a":"{name}"}'),
        ("{sly}", "{name} and {{token}} and {sly}"),
        ("[{empty}] [{nothing}]", "[] [null]"),
        ("{city名}", "北京"),
        ("{unknown} {{unknown}} {} {{}} { name } {na-me}", None),
        ('Answer {"name": 1, "a": {"b": []}} or {\n}', None),
        ("{user_id} on {{current_date}} in {session_id}", "ann on 2026-03-02 in s-1"),
        ("{{user_info}}", '{"name":"Ann","born":1970}'),
        ("{leak}", f"a note with {HIDDEN}"),
        ("{token_id} {{token}} {identity}", None),
        ("nothing to fill in", None),
        ("", None),
    ],
)
async def test_known_placeholders_are_replaced_and_other_braces_stay(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    assert await filled(tmp_path, text) == (text if expected is None else expected)


async def test_session_placeholder_without_a_session_fails_the_step(tmp_path: Path) -> None:
    text = "{session_id} {current_date}"

    assert await filled(tmp_path, text, session_id=None) == "{session_id} 2026-03-02"


async def test_without_a_caller_only_instructions_with_caller_placeholders_fail(
    tmp_path: Path,
) -> None:
    assert await filled(tmp_path, "{name}", who=None) == "Ann"
    with pytest.raises(Exception, match="No caller is set"):
        await filled(tmp_path, "{user_id}", who=None)


known = st.sampled_from(["{name}", "{{name}}", "{sly}", "{object}"])
# A backslash before a placeholder keeps it as text: see the test below.
plain = st.text().filter(lambda text: not set("{}") & set(text) and not text.endswith("\\"))


@given(st.lists(st.tuples(plain, known), max_size=5), plain)
async def test_every_placeholder_is_replaced_once_within_any_text(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str]], last: str
) -> None:
    values = {name: await filled(tmp_path_factory.mktemp("x"), name) for _, name in parts}
    text = "".join(before + name for before, name in parts) + last
    expected = "".join(before + values[name] for before, name in parts) + last

    assert await filled(tmp_path_factory.mktemp("x"), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\{name} is {name}", "{name} is Ann"),
        (r"\{{name}} is {{name}}", "{{name}} is Ann"),
        (r"\{current_date}, \{{user_info}}, \{session_id}", None),
        (r"\\{name} \ {name}", r"\{name} \ Ann"),
        (r"\{unknown} \{} \frac{a}{b} \{x\} C:\ \n", "unchanged"),
    ],
)
async def test_backslash_before_a_known_placeholder_keeps_it_as_text(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    if expected is None:
        expected = "{current_date}, {{user_info}}, {session_id}"
    elif expected == "unchanged":
        expected = text
    assert await filled(tmp_path, text) == expected


async def test_escaped_caller_placeholder_needs_no_caller(tmp_path: Path) -> None:
    assert await filled(tmp_path, r"\{user_id}", who=None) == "{user_id}"


# --- In runs -----------------------------------------------------------------------------------


@tool
async def rename(state: SessionState, name: str) -> None:
    state.set("name", name)


def two_steps(first: str, second: str) -> Application:
    """Return an application of two agents with these instructions, the first of which renames."""
    model = ScriptedModel(
        [
            Script(
                [Turn(calls=[call("rename", {"name": "Bob"})]), Turn("renamed")],
                agent="first",
                times=None,
            ),
            Script([Turn("done")], agent="second", times=None),
        ]
    )
    agents = (Agent("first", first, tools=(rename,)), Agent("second", second))
    return Application(
        name="tests",
        agents=agents,
        model=model,
        session_state={"name": "Ann"},
        token_resolver=resolve,
    )


async def said_to(on: Bench, root_plan_id: Any) -> list[str]:
    """Return each step's instructions, of all of its rounds."""
    found = []
    for step in (await on.tree(root_plan_id))["agentExecutions"]:
        rounds = [(await on.messages(each))[0]["content"] for each in step["thinkActs"]]
        assert len(set(rounds)) <= 1
        found += [each.partition("\n\n")[2] for each in rounds[:1]]
    return found


PLAN: tuple[str, list[tuple[str | None, str]]] = ("Two", [("first", "Rename"), ("second", "Look")])


@pytest.mark.parametrize("first", ["You are {name}.", "You rename."])
async def test_placeholders_have_the_session_state_at_the_start_of_the_run(
    tmp_path: Path, first: str
) -> None:
    store = recording_in_memory()
    async with bench(two_steps(first, "They are {name}."), store, store, tmp_path) as on:
        runs = [await on.launcher.run("Go", plan=PLAN, session_id="s") for _ in range(2)]
        said = [await said_to(on, each.root_plan_id) for each in runs]

    assert [each[1] for each in said] == ["They are Ann.", "They are Bob."]


async def test_unresolved_caller_placeholder_fails_the_step_before_a_request(
    tmp_path: Path,
) -> None:
    store = recording_in_memory()
    application = two_steps("You rename for {user_id}.", "You look.")
    async with bench(application, store, store, tmp_path) as on:
        outcome = await on.launcher.run("Go", plan=PLAN)
        rows = await on.rows(outcome.root_plan_id)
        with identity(token_id=TOKEN):
            with_caller = await on.launcher.run("Go", plan=PLAN)
        said = await said_to(on, with_caller.root_plan_id)
        shown = repr(await on.rows(with_caller.root_plan_id))

    assert outcome.status == "failed"
    assert (rows.steps[0]["status"], rows.steps[0]["reason"]) == ("failed", "missing_identity")
    assert rows.think_acts == []
    assert said == ["You rename for ann.", "You look."]
    assert "canary" not in shown


async def test_placeholders_in_the_users_message_are_not_replaced(tmp_path: Path) -> None:
    store = recording_in_memory()
    model = ScriptedModel([Script([Turn("done")])])
    agents = (Agent("worker", "You work for {name}."),)
    application = Application(
        name="tests", agents=agents, model=model, session_state={"name": "{user_id}"}
    )
    async with bench(application, store, store, tmp_path) as on:
        outcome = await on.launcher.run("I am {name}, {{user_id}}", agent="worker")
        [step] = (await on.tree(outcome.root_plan_id))["agentExecutions"]
        messages = await on.messages(step["thinkActs"][0])

    assert messages[0]["content"].endswith("You work for {user_id}.")
    assert messages[1]["content"] == "I am {name}, {{user_id}}"


async def test_step_that_needs_missing_session_state_fails(tmp_path: Path) -> None:
    worker = Agent("worker", "You know {note}.")
    application = Application(
        name="tests", agents=(worker,), model=ScriptedModel([]), history_characters=0
    )
    store = recording_in_memory()
    async with bench(application, store, store, tmp_path) as on:
        run = await on.launcher.run("Ask", agent="worker", session_id="s" * 3000)
        [step] = (await on.rows(run.root_plan_id)).steps

    assert (step["status"], step["reason"]) == ("failed", "state_conflict")


async def test_instructions_stay_as_written_if_placeholders_are_off(
    tmp_path: Path,
) -> None:
    text = "Answer as {name} or {{user_id}}, on {current_date}."
    model = ScriptedModel([script("Go", "Done.")])
    worker = Agent("worker", text, resolve_in_context=False)
    store = recording_in_memory()
    of_worker = Application(name="tests", agents=(worker,), model=model, session_state=STATE)
    async with bench(of_worker, store, store, tmp_path) as on:
        # Without an identity: filling in `{{user_id}}` would fail.
        outcome = await on.launcher.run("Go", agent="worker", session_id="s")
        tree = await on.tree(outcome.root_plan_id)
        messages = await on.messages(tree["agentExecutions"][0]["thinkActs"][0])

    assert outcome.status == "succeeded"
    assert messages[0]["content"].endswith(f"\n\n{text}")


# --- The date ----------------------------------------------------------------------------------

EAST, WEST = "Pacific/Kiritimati", "Etc/GMT+12"
"""26 hours apart: they never have the same date."""


def date_in(time_zone: str) -> str:
    return datetime.now(ZoneInfo(time_zone)).date().isoformat()


async def shown_date(store: RecordingInMemory, tmp_path: Path, **options: Any) -> str:
    """Return the date that an agent of an application with these options is given."""
    worker = Agent("worker", "Today is {current_date}")
    application = Application(
        name="tests",
        agents=(worker,),
        model=ScriptedModel([Script([Turn("done")])]),
        **options,
    )
    async with bench(application, store, store, tmp_path) as on:
        with identity(token_id=TOKEN):
            outcome = await on.launcher.run("Ask", agent="worker")
        [step] = (await on.tree(outcome.root_plan_id))["agentExecutions"]
        [system, _] = await on.messages(step["thinkActs"][0])
    return str(system["content"]).rpartition(" ")[2]


@pytest.mark.parametrize("zone", [EAST, WEST])
async def test_date_placeholder_uses_the_time_zone_of_the_application(
    store: RecordingInMemory, tmp_path: Path, zone: str
) -> None:
    before = date_in(zone)
    assert await shown_date(store, tmp_path, time_zone=zone) in {before, date_in(zone)}


async def test_date_placeholder_uses_the_time_zone_of_the_caller(
    store: RecordingInMemory, tmp_path: Path
) -> None:
    before = date_in(WEST)
    found = await shown_date(
        store,
        tmp_path,
        time_zone=EAST,
        token_resolver=lambda token: User("ann", time_zone=WEST),
    )
    assert found in {before, date_in(WEST)}


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "Asia", "\0", "x" * 9999, 8]
)
async def test_invalid_caller_time_zone_is_logged_and_replaced(
    store: RecordingInMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture, zone: Any
) -> None:
    before = date_in(EAST)
    found = await shown_date(
        store,
        tmp_path,
        time_zone=EAST,
        token_resolver=lambda token: User("ann", time_zone=zone),
    )
    assert found in {before, date_in(EAST)}
    assert "time_zone_unknown" in caplog.text


def resolver_without_a_user(token_id: str) -> None:
    return None


def resolver_that_fails(token_id: str) -> None:
    raise ConnectionError


@pytest.mark.parametrize("resolver", [resolver_without_a_user, resolver_that_fails])
async def test_date_placeholder_is_replaced_if_the_caller_is_unknown(
    store: RecordingInMemory, tmp_path: Path, resolver: Callable[[str], None]
) -> None:
    before = date_in(EAST)
    found = await shown_date(store, tmp_path, time_zone=EAST, token_resolver=resolver)
    assert found in {before, date_in(EAST)}


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "Asia", "GMT+8"])
def test_unknown_time_zone_of_an_application_is_a_configuration_error(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="Asia/Shanghai"):
        Application(
            name="tests",
            agents=(Agent("worker", "Work."),),
            model=ScriptedModel([]),
            time_zone=zone,
        )
