"""Registration of MCP tools, their local names, and the forms of their results."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from tests.tools.mcp_servers import live_server
from tests.tools.tables import not_rejected
from tracer.errors import ToolError
from tracer.records.results import error_info, result_text
from tracer.tools.mcp import McpConfig, McpServer, local_name, result_of


async def test_mcp_tools_with_valid_names_and_schemas_are_registered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live_server(tmp_path, "http") as live:
        async with McpServer(live.config(max_attempts=3, tags={"odd"}, timeout=7)) as server:
            tools = {tool.name: tool for tool in await server.tools()}
        async with McpServer(live.config(prefix="x", tools=["odd.name/ü", "fail"])) as server:
            chosen = [tool.name for tool in await server.tools()]

    assert len(tools["echo_meta"].description) == 4_000
    assert tools["number"].parameters == {"type": "object", "required": ["n"]}
    assert {tool.name: tool.max_attempts for tool in tools.values() if tool.max_attempts > 1} == {
        "echo_meta": 3,  # It says that it only reads,
        "fail": 3,  # and it that it may be repeated.
    }
    assert {(tool.timeout, *tool.tags) for tool in tools.values()} == {(7, "odd")}
    # Of two names that come out alike the first is taken. No schema is fetched from elsewhere.
    assert [name for name in tools if name.startswith(("odd", "remote"))] == ["odd_name__"]
    assert chosen == ["x_fail", "x_odd_name__"]
    fields = [getattr(each, "fields", {}) for each in caplog.records]
    assert {"odd/name.ü", "remote_ref", "remote_output_ref"} <= {
        each.get("tool") for each in fields
    }


def test_mcp_library_is_imported_only_to_connect() -> None:
    # It takes more than a second, for applications that may have no such server.
    check = "import sys, tracer.tools.mcp; sys.exit('mcp' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


@given(st.text(min_size=1), st.none() | st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True))
def test_local_names_are_valid_for_models(name: str, prefix: str | None) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", local_name(name, prefix))


@given(st.text())
def test_single_text_is_returned_unchanged(text: str) -> None:
    answer = CallToolResult(content=[TextContent(text=text)])

    assert result_of(answer, max_bytes=1_000_000) == text


@given(st.lists(st.text(max_size=9)), st.integers(0, 200))
def test_results_above_the_limit_are_rejected(texts: list[str], limit: int) -> None:
    answer = CallToolResult(content=[], structured_content={"texts": texts})
    size = len(result_text({"texts": texts}).encode())

    if size <= limit:
        assert result_of(answer, limit) == {"texts": texts}
    else:
        with pytest.raises(ToolError, match=f"{size} bytes; at most {limit}"):
            result_of(answer, limit)


def test_mcp_error_without_text_fails_the_call() -> None:
    with pytest.raises(ToolError, match="failed without a message"):
        result_of(CallToolResult(content=[], is_error=True), max_bytes=1_000)


def test_long_error_is_truncated() -> None:
    with pytest.raises(ToolError) as failed:
        result_of(
            CallToolResult(content=[TextContent(text="x" * 9_999)], is_error=True), max_bytes=1_000
        )

    assert len(error_info(failed.value).message) < 4_100


def test_invalid_configurations_are_rejected() -> None:
    invalid: list[dict[str, Any]] = [
        {},
        {"command": "x", "url": "http://127.0.0.1/mcp"},
        {"url": "ftp://127.0.0.1/mcp"},
        {"command": "x", "headers": {"a": "b"}},
        {"command": "x", "bearer": "env:TOKEN"},
        {"url": "http://127.0.0.1/mcp", "args": ["x"]},
        {"url": "http://127.0.0.1/mcp", "bearer": "the token itself"},
        {"command": "x", "prefix": "not a name"},
        {"command": "x", "timeout": 0},
        {"command": "x", "surprise": 1},
    ]
    failures = not_rejected(
        ValidationError,
        lambda options: McpConfig.model_validate({"name": "any", **options}),
        invalid,
        secret="the token itself",
    )
    assert failures == []
