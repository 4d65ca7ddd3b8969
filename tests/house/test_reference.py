"""The reference pages list exactly the requests, commands and settings that exist."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import typer

import tracer
from tests.api.commands import serving_here
from tests.api.commands import tracer as tracer_command
from tests.house.project_files import ROOT
from tests.projecting import DatabaseProjection, project
from tracer.cli.main import commands
from tracer.settings import Settings
from tracer.storage.postgres import ProjectPool, connection_options, open_pool
from tracer.storage.postgres.rollups import roll_up_runs

REFERENCE = ROOT / "docs" / "reference"


def test_rest_reference_lists_every_operation() -> None:
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    served = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
    page = (REFERENCE / "rest.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `([A-Z]+ /[^`]*)`", page, re.MULTILINE)) == served


def test_commands_reference_lists_every_command() -> None:
    names = set(typer.main.get_group(commands).commands)
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `tracer ([a-z-]+)", page, re.MULTILINE)) == names


def test_settings_reference_lists_every_environment_variable() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")

    listed = set(re.findall(r"`(TRACER_[A-Z_]+)`", page))
    assert {f"TRACER_{name.upper()}" for name in Settings.model_fields} <= listed


def test_rest_reference_shows_the_answer_of_each_curl(database_url: str, tmp_path: Path) -> None:
    page = (REFERENCE / "rest.md").read_text(encoding="utf-8").partition("## Tasks")[2]
    create = ("keys", "create", "reader", "--scope", "admin", "--yes")
    key = tracer_command(tmp_path, *create, TRACER_DATABASE_URL=database_url).stdout.split()[-1]
    projection = DatabaseProjection(connection_options(database_url))
    wrong = []
    with serving_here(database_url, tmp_path) as url:
        variables = {"TRACER_URL": url, "TRACER_API_KEY": key} | _sample_runs(url, key)
        runs = [UUID(variables[name]) for name in ("RUN", "EARLIER")]
        asyncio.run(_roll_up(database_url, runs))
        for command, answer in _CURL.findall(page):
            body = _answer(command, variables)
            asyncio.run(project(projection))  # the server has no projectors
            if missing := _missing(json.loads(answer or "null"), body):
                wrong.append((command, missing, body))
            if body and "secret" in body:
                variables["KEY_ID"] = body["keyId"]

    assert wrong == []
    assert len(_CURL.findall(page)) == page.count("curl -s")


_CURL = re.compile(
    r"^```sh\n(curl .*?)^```\n(?:\n(?:[^#`\n][^\n]*\n)*\n?```json\n(.*?)^```)?", re.M | re.S
)
"""A command, and the JSON below it, after at most one paragraph."""


def _sample_runs(url: str, key: str) -> dict[str, str]:
    """Record a run that succeeds and one that fails in a sub-agent; return their ids."""
    for table in ({"low tide Brest": "Low tide is at 06:41."}, {}):
        with tracer.connect(url, api_key=key) as tracing:
            _plan_a_visit(tracing, table)
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=60) as client:
        failed, earlier = client.get("/api/runs").json()["items"]
    ids = {"RUN": failed["rootPlanId"], "EARLIER": earlier["rootPlanId"]}
    return ids | {"CALL": failed["failure"]["id"]}


async def _roll_up(database_url: str, runs: list[UUID]) -> None:
    """Add runs to the statistics now; the server does it once a minute."""
    async with open_pool(database_url) as pool:
        await roll_up_runs(ProjectPool(pool), runs)


def _plan_a_visit(tracing: tracer.Tracing, table: dict[str, str]) -> None:
    request, question = "When should I visit the tide pools in Brest?", "When is low tide in Brest?"
    calls = [("ask_researcher", {"question": question}), ("search", {"query": "low tide Brest"})]
    properties: Any = {"request": request, "session_id": "tides", "subject": "ann"}
    try:
        with tracing.plan(request, agent="planner", **properties) as plan:
            with tracing.think_act(
                [{"role": "user", "content": request}], model="gpt-5-mini"
            ) as thought:
                [ask] = thought.finish("", input_tokens=100, output_tokens=10, tool_calls=calls[:1])
            with ask, tracing.plan(question, agent="researcher") as sub_plan:
                with tracing.think_act(
                    [{"role": "user", "content": question}], model="gpt-5-mini"
                ) as thought:
                    [search] = thought.finish(
                        "", input_tokens=100, output_tokens=10, tool_calls=calls[1:]
                    )
                with search:
                    search.finish(table["low tide Brest"])
                sub_plan.finish("Low tide is at 06:41.")
            plan.finish("Go at 06:41, at low tide.")
    except KeyError:
        pass


def _answer(command: str, variables: dict[str, str]) -> Any:
    """Run a command; return its JSON, or the first JSON of a stream."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    with process:
        if " -sN " in command:
            body = next(line for line in process.stdout if line.startswith("data: "))[6:]
            process.terminate()
        else:
            body = process.stdout.read()
    return json.loads(body or "null")


def _missing(shown: Any, real: Any, path: str = "") -> list[str]:
    """Return what an example has and the real answer lacks. Values may differ."""
    if isinstance(shown, dict):
        if not isinstance(real, dict):
            return [path]
        return [
            missing
            for name, value in shown.items()
            for missing in (
                _missing(value, real[name], f"{path}.{name}")
                if name in real
                else [f"{path}.{name}"]
            )
        ]
    if isinstance(shown, list) and shown and isinstance(shown[0], (dict, list)):
        return _missing(shown[0], real[0], f"{path}[0]") if real else [path]
    return [] if isinstance(shown, list) == isinstance(real, list) else [path]
