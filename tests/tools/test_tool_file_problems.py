"""All problems in a tool file are reported together, each with its place in the file."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.tables import wrong_values
from tests.tools.tool_file_reading import FILE, FUNCTIONS, problems_of, read
from tracer.errors import RegistrationError
from tracer.runtime import Agent, Application
from tracer.tools import tool
from tracer.tools.config import read_tools
from tracer.tools.mcp import McpServer


@tool
def made_already() -> str:
    return ""


def test_all_problems_are_reported_together_with_their_places(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        f"""
        tool = 1
        [tools.typo]
        type = "STATELESS"
        function = "add"
        timout = 3
        max_attempts = 0
        tool_hooks = ["ad"]
        [tools.nearly]
        type = "stateles"
        [tools.lower]
        type = "rest"
        [tools.kindless]
        function = "add"
        [tools.flat]
        type = "STATELESS"
        function = "add"
        parameters = {{ type = "string" }}
        [tools.unknown]
        type = "STATELESS"
        function = "ad"
        [tools.made]
        type = "STATELESS"
        function = "{__name__}:made_already"
        [tools.number]
        type = "STATELESS"
        function = "math:pi"
        [tools.rest]
        type = "REST"
        config = {{ base_url = "https://a.example", auth = {{ type = "bearer", secrt = "env:A" }} }}
        [tools.far]
        type = "STATELESS"
        function = "add"
        parameters = "far.json"
        """,
        functions={**FUNCTIONS, f"{__name__}:made_already": made_already},
    )

    assert [each.partition(": ")[0] for each in problems] == [
        "tools.typo.STATELESS.max_attempts",
        "tools.typo.STATELESS.tool_hooks.0",
        "tools.typo.STATELESS.timout",
        "tools.nearly",
        "tools.lower",
        "tools.kindless",
        "tools.flat.STATELESS.parameters",
        "tools.unknown.STATELESS.function",
        "tools.made.STATELESS.function",
        "tools.number.STATELESS.function",
        "tools.rest.REST.description",
        "tools.rest.REST.parameters",
        "tools.rest.REST.config.auth.bearer.secret",
        "tools.rest.REST.config.auth.bearer.secrt",
        "tools.far.STATELESS.parameters",
        "tool",
    ]
    by_entry = dict(each.split(": ", 1) for each in problems)
    assert "'STATELESS', 'STATEFUL', 'REST', 'MCP'" in by_entry["tools.nearly"]
    assert 'begin with type = "object"' in by_entry["tools.flat.STATELESS.parameters"]
    assert "Choose from: Counter, add, greet" in by_entry["tools.unknown.STATELESS.function"]


def test_problems_of_servers_and_names_are_reported_with_their_places(tmp_path: Path) -> None:
    unnamed = '[tools."no name"]\ntype = "STATELESS"\nfunction = "add"\n'
    both = '[servers.both]\ncommand = "a"\nurl = "https://a.example"\n'
    typo = '[servers.typo]\ncomand = "a"\n'

    assert [each.partition(": ")[0] for each in problems_of(tmp_path, unnamed)] == ["tools.no name"]
    assert [each.partition(": ")[0] for each in problems_of(tmp_path, both + typo)] == [
        "servers.both",
        "servers.typo.comand",
    ]


def test_secret_in_the_file_is_rejected_and_not_repeated(tmp_path: Path) -> None:
    locations = {
        "servers.mcp.headers": (
            '[tools.mcp]\ntype = "MCP"\n'
            'config = {{ url = "https://a.example", headers = {{ {} }} }}',
            "env:NAME",
        ),
        "servers.http.headers": (
            '[servers.http]\nurl = "https://a.example"\nheaders = {{ {} }}',
            "env:NAME",
        ),
        "servers.stdio.env": ('[servers.stdio]\ncommand = "a"\nenv = {{ {} }}', "env:NAME"),
    }
    values = {
        "Authorization": "Bearer canary",
        "X-Api-Key": "canary",
        "apikey": "canary",
        "XAuthToken": "canary",
        "Ocp-Apim-Subscription-Key": "canary",
        "WEATHER_TOKEN": "canary",
        "X-Whatever": "bearer canary",
    }
    failures = []
    for (location, (text, advice)), (name, value) in product(locations.items(), values.items()):
        problems = problems_of(tmp_path, text.format(f'{name} = "{value}"'))
        beginning = f"{location}: files must not contain secrets: set {name}"
        if (
            len(problems) != 1
            or not problems[0].startswith(beginning)
            or advice not in problems[0]
            or "canary" in problems[0]
        ):
            failures.append(
                f"{location}: expected one problem, {beginning!r} with {advice!r}, without the "
                f"secret; got {problems}"
            )

    assert failures == []


@pytest.mark.parametrize(
    ("setting", "location", "advice"),
    [
        ('headers = { Authorization = "Bearer canary" }', "headers", 'type = "bearer"'),
        ('headers = { X-API-KEY = "canary" }', "headers", 'name = "X-API-KEY"'),
        ('headers = { xApiKey = "canary" }', "headers", 'name = "xApiKey"'),
        ('headers = { X-Whatever = "bearer canary" }', "headers", 'type = "header"'),
        ('query = { api_key = "canary" }', "query", 'type = "query", name = "api_key"'),
        ("query = { token = 4711 }", "query", 'name = "token"'),
        ('path = "/v1?token=canary"', "path", "query"),
        ('base_url = "https://b.example?token=canary"', "base_url", "query"),
    ],
)
def test_rest_secret_in_the_file_is_rejected_and_not_printed(
    tmp_path: Path, setting: str, location: str, advice: str
) -> None:
    base = "" if location == "base_url" else 'base_url = "https://a.example"\n'
    [problem] = problems_of(
        tmp_path,
        '[tools.r]\ntype = "REST"\ndescription = ""\nparameters.type = "object"\n'
        f"[tools.r.config]\n{base}{setting}",
    )

    assert problem.startswith(f"tools.r.REST.config.{location}: ")
    assert advice in problem
    assert "canary" not in problem
    assert "4711" not in problem


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("https://a.example/mcp?n=1&access_token=canary", "the parameter access_token"),
        ("https://a.example/mcp?tavilyApiKey=canary", "the parameter tavilyApiKey"),
        ("https://user:canary@a.example/mcp", "the password"),
    ],
)
def test_secret_in_an_mcp_servers_url_is_rejected_and_not_repeated(
    tmp_path: Path, url: str, part: str
) -> None:
    problems = problems_of(
        tmp_path,
        f'[servers.a]\nurl = "{url}"\n[tools.t]\ntype = "MCP"\nconfig.url = "{url}"\n',
    )

    assert len(problems) == 2
    for problem, location in zip(problems, ("servers.a.url", "servers.t.url"), strict=True):
        assert problem.startswith(f"{location}: {part} of the URL is a secret")
        assert "canary" not in problem


def test_secret_instead_of_a_reference_is_not_repeated(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """
        [tools.w]
        type = "REST"
        description = "Reads."
        parameters.type = "object"
        [tools.w.config]
        base_url = "https://user:canary@a.example"
        auth = { type = "bearer", secret = "canary" }
        """,
    )

    assert [each.partition(": ")[0] for each in problems] == [
        "tools.w.REST.config.base_url",
        "tools.w.REST.config.auth.bearer.secret",
    ]
    [problem] = problems_of(tmp_path, '[servers.w]\nurl = "https://a.example"\nbearer = "canary"\n')
    assert problem.startswith("servers.w.bearer: ")
    assert "canary" not in "".join([*problems, problem])


def test_secret_references_and_harmless_settings_are_accepted(tmp_path: Path) -> None:
    read(
        tmp_path,
        """
        [servers.local]
        command = "a"
        env = { API_TOKEN = "env:API_TOKEN", TOKENIZERS_PARALLELISM = "false" }
        [servers.remote]
        url = "https://a.example"
        bearer = "env:API_TOKEN"
        headers = { X-Api-Key = "file:api_key" }
        [tools.w]
        type = "REST"
        description = "Reads."
        parameters.type = "object"
        [tools.w.config]
        base_url = "https://a.example"
        headers = { Accept = "application/json" }
        auth = { type = "bearer", secret = "env:API_TOKEN" }
        """,
    )


def test_schema_with_a_remote_reference_is_rejected(tmp_path: Path) -> None:
    [problem] = problems_of(
        tmp_path,
        """
        [tools.add]
        type = "STATELESS"
        [tools.add.parameters]
        type = "object"
        properties.a."$ref" = "http://127.0.0.1:9/schema.json"
        """,
    )

    assert problem.startswith(
        "tools.add: The parameters of the tool 'add' are not a valid JSON Schema"
    )


def test_date_in_a_schema_is_rejected_and_its_tool_is_named(tmp_path: Path) -> None:
    [problem] = problems_of(
        tmp_path,
        """
        [tools.read_day]
        type = "REST"
        description = "Read a day."
        parameters = { type = "object", properties.day = { default = 2026-01-01 } }
        config.base_url = "https://days.example"
        """,
    )

    assert problem.startswith("tools.read_day")
    assert "must be JSON" in problem
    assert "Write such a value as text" in problem


def test_contradictory_descriptions_of_one_mcp_server_are_rejected(tmp_path: Path) -> None:
    [problem] = problems_of(
        tmp_path,
        """
        [tools.a]
        type = "MCP"
        config = { name = "store", url = "https://one.example" }
        [tools.b]
        type = "MCP"
        config = { name = "store", url = "https://two.example" }
        """,
    )

    assert problem == "tools.b.config: contradicts another description of the server 'store'."


def test_two_tools_with_one_name_are_rejected(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, '[[tools]]\nname = "add"\ntype = "STATELESS"\n' * 2)

    assert problem == "tools.number 2: Two tools are named 'add'. Rename one."


def test_value_of_a_wrong_type_is_reported_with_its_place(tmp_path: Path) -> None:
    stateless = '[tools.add]\ntype = "STATELESS"\n'
    locations = {
        "tools = 1": "tools",
        "tools = [1]": "tools.number 1",
        "servers = 1": "servers",
        "[tools]\nadd = 1": "tools.add",
        "[servers]\nclock = 1": "servers.clock",
        '[[tools]]\nfunction = "add"\ntype = "STATELESS"': "tools.number 1.STATELESS.name",
        '[tools.add]\ntype = "STATELESS"\nmetadata = 1': "tools.add",
        '[tools.add]\ntype = "MCP"\nconfig = 1': "tools.add.MCP.config",
        '[tools.add]\ntype = ["MCP"]': "tools.add",
        f'{stateless}parameters = "missing.json"': "tools.add.STATELESS.parameters",
        f'{stateless}config = {{ headers = {{ A = "b" }} }}': "tools.add.STATELESS.config",
    }

    def reported(text: str) -> list[str]:
        return [each.partition(": ")[0] for each in problems_of(tmp_path, text)]

    assert wrong_values(reported, {text: [location] for text, location in locations.items()}) == []


FAULTY = """
[[tools]]
name = "add"
type = "STATELESS"
[[tools]]
name = "typo"
type = "STATELESS"
function = "add"
timout = 3
max_attempts = 0
[[tools]]
name = "secret"
type = "REST"
description = "Reads."
parameters = { type = "object" }
config = { base_url = "https://a.example", headers = { Authorization = "Bearer canary" } }
[[tools]]
name = "add"
type = "STATELESS"
[[tools]]
name = "token"
type = "STATELESS"
function = "add"
parameters = { type = "object", properties = { token_id = { type = "string" } } }
[[tools]]
name = "read_row"
type = "MCP"
config = { name = "absent" }
[[tools]]
name = "write_row"
type = "MCP"
config = { name = "store", url = "https://store.example/mcp" }
[[tools]]
name = "drop_row"
type = "MCP"
config = { name = "store", url = "https://elsewhere.example/mcp" }
[servers.both]
command = "a"
url = "https://a.example"
"""


def test_faulty_tools_are_refused_and_logged_and_the_others_are_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = read(tmp_path, FAULTY)
    agent = Agent(tools=("add", "typo", "write_row"))
    Application(name="app", agents=(agent,), registry=registry)

    assert [each.name for each in registry] == ["add"]
    servers = [each for each in registry.servers if isinstance(each, McpServer)]
    assert [(each.name, each.config.tools) for each in servers] == [
        ("store", frozenset({"write_row"}))
    ]
    reasons = {
        "typo": "tools.typo.STATELESS.timout: ",
        "secret": "tools.secret.REST.config.headers: the header Authorization is a secret",
        "number 4": "tools.number 4: Two tools are named 'add'",
        "token": "tools.token: ",
        "read_row": "servers.absent: an MCP server must have either a command or a url",
        "drop_row": "tools.drop_row.config: contradicts another description",
        "servers.both": "servers.both: an MCP server must have either",
    }
    assert registry.refused.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in registry.refused[name]
        assert f"tool='{name}'" in caplog.text
    assert "max_attempts" in registry.refused["typo"]
    assert "canary" not in f"{registry.refused}{caplog.text}"
    assert len(problems_of(tmp_path, FAULTY)) > 1  # with `strict`


def test_other_errors_of_a_file_are_rejected_although_a_tool_is_faulty(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path, 'tool = 1\n[tools.typo]\ntype = "STATELESS"\ntimout = 3\n', strict=False
    )

    assert [each.partition(": ")[0] for each in problems] == ["tool"]


def test_file_that_is_not_toml_is_rejected(tmp_path: Path) -> None:
    for content in (b"[tools", b"\xff"):
        (tmp_path / FILE).write_bytes(content)

        with pytest.raises(RegistrationError, match=f"^{re.escape(FILE)} "):
            read_tools(tmp_path / FILE)


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="cannot be read"):
        read_tools(tmp_path / FILE)


_keys = st.sampled_from(
    ["tools", "servers", "name", "type", "config", "metadata", "parameters", "function", "headers"]
)
_values = st.recursive(
    st.sampled_from(["STATELESS", "NATIVE", "REST", "MCP", "add", "Bearer x", 1, 0.5, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=12,
)


@given(content=st.dictionaries(_keys, _values, max_size=4))
def test_any_file_is_read_or_rejected(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("tools")
    text = "\n".join(f"{name} = {_toml(value)}" for name, value in content.items())
    (folder / FILE).write_text(text)

    with suppress(RegistrationError):
        read_tools(folder / FILE, functions=FUNCTIONS)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_toml(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)
