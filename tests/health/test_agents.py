"""What `agents.yaml` says fits what there is."""

from dataclasses import replace
from pathlib import Path

from health.agents import diary_tools, health_application
from health.diary import Diary
from tests.health.serving import served
from tracer.runtime.scripted_model import ScriptedModel


async def test_each_tool_that_an_agent_names_is_there_once_the_servers_are(
    database_url: str, tmp_path: Path
) -> None:
    application = health_application(Diary())
    async with served(database_url, tmp_path, application) as made:
        for agent in application.agents:
            found = agent.tools_now(made.launcher.tools.registry)

            assert list(found) == list(agent.tools), agent.name


def test_the_nurse_has_the_whole_diary_and_nobody_else_may_write_in_it() -> None:
    application = health_application(Diary())
    names = [tool.name for tool in diary_tools(Diary())]
    writing = {name for name in names if not name.startswith("query")}

    assert list(application.agent("nurse").tools) == names
    for agent in application.agents:
        assert agent.name == "nurse" or writing.isdisjoint(map(str, agent.tools))


def test_the_model_that_is_configured_thinks_for_every_agent() -> None:
    model = ScriptedModel([])
    application = replace(health_application(Diary()), model=model)

    assert {agent.model or application.model for agent in application.agents} == {model}
