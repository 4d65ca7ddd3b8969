"""OpenAI Agents SDK: the recorded provider and finish reason of a model call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from agents import Agent, OpenAIResponsesModel, Runner, set_trace_processors
from agents.items import ModelResponse
from agents.testing import ScriptedModel
from openai import AsyncAzureOpenAI, AsyncOpenAI
from openai.types.responses import Response

from tests.adapters.installed import installed
from tests.adapters.openai_agents_scripts import DONE
from tests.adapters.recording import RecordedStore, tree_of
from tests.recordings import round_of
from tracer.adapters import openai_agents
from tracer.adapters.openai_agents.run import finish_reason_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    set_trace_processors([])
    with installed(openai_agents.install, tmp_path) as store:
        yield store


class Scripted(OpenAIResponsesModel):
    """OpenAI's model with its real client, whose answers come from a script."""

    def __init__(self, client: AsyncOpenAI) -> None:
        super().__init__("gpt-5-mini", client)
        self._script = ScriptedModel([DONE])

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        return await self._script.get_response(*args, **options)


@pytest.mark.parametrize(
    ("client", "provider"),
    [
        (AsyncOpenAI(api_key="none"), "openai"),
        (AsyncOpenAI(api_key="none", base_url="https://api.groq.com/openai/v1"), "groq"),
        (AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:1/v1"), None),
        (
            AsyncAzureOpenAI(
                api_key="none", api_version="2026-01-01", azure_endpoint="https://x.example"
            ),
            "azure.ai.openai",
        ),
    ],
)
async def test_provider_is_derived_from_the_base_url_of_the_models_client(
    store: RecordedStore, client: AsyncOpenAI, provider: str | None
) -> None:
    await Runner.run(Agent("planner", model=Scripted(client)), "Is it open?")

    [thought] = (await tree_of(store))["agentExecutions"][0]["thinkActs"]
    record = round_of(store, UUID(thought["thinkActId"]))
    assert (record.provider, record.requested_model) == (provider, "gpt-5-mini")


@pytest.mark.parametrize(
    ("status", "details", "reason"),
    [
        ("completed", None, "completed"),
        ("incomplete", {"reason": "max_output_tokens"}, "max_output_tokens"),
        ("incomplete", None, "incomplete"),
    ],
)
def test_finish_reason_is_the_reason_why_a_response_is_incomplete(
    status: str, details: dict[str, str] | None, reason: str
) -> None:
    response = Response.model_validate(
        {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "model": "gpt-5-mini",
            "output": [],
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "status": status,
            "incomplete_details": details,
        }
    )
    assert finish_reason_of(response) == reason
