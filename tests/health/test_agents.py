"""`agents.yaml` names only tools that exist."""

from dataclasses import replace
from pathlib import Path

from health.agents import diary_tools, health_application
from health.diary import Diary
from tests.health.serving import health, served
from tracer.runtime.scripted_model import ScriptedModel


async def test_every_tool_of_an_agent_is_registered_after_the_servers_connect(
    database_url: str, tmp_path: Path
) -> None:
    application = health()
    async with served(database_url, tmp_path, application) as made:
        for agent in application.agents:
            found = agent.tools_now((await made.opened_launcher()).tools.registry)

            assert list(found) == list(agent.tools), agent.name


def test_only_the_nurse_agent_has_tools_that_write_to_the_diary() -> None:
    application = health_application(Diary())
    names = [tool.name for tool in diary_tools(Diary())]
    writing = {name for name in names if not name.startswith("query")}

    assert list(application.agent("nurse").tools) == names
    for agent in application.agents:
        assert agent.name == "nurse" or writing.isdisjoint(map(str, agent.tools))


def test_configured_model_is_used_by_every_agent() -> None:
    model = ScriptedModel([])
    application = replace(health_application(Diary()), model=model)

    assert {agent.model or application.model for agent in application.agents} == {model}
