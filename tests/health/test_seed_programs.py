"""The code of seeds 000 and 001, as the documents write it: tools that take the caller's token.

The lines are the documents'. A comment marks each line that differs, with the reason. LangChain's
`@tool` is Tracer's `tool`, and `TokenContext` is Tracer's `identity`.
"""

# ruff: noqa: UP006, UP035, UP045
# mypy: disable-error-code="no-untyped-def, no-untyped-call, type-arg, arg-type"
from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from tests.tools.service_bench import service
from tracer import TokenId, Tool, get_token_id, tool
from tracer import identity as TokenContext  # noqa: N812 - the document's name
from tracer.errors import RegistrationError
from tracer.tools import ToolService

stored: list[tuple[Any, ...]] = []

# --- The documents' code -----------------------------------------------------------------------


def _convert_token_to_user_id(token_id: str) -> str:
    """将 tokenId 转换为 userId"""
    # 当前实现：直接返回
    return token_id


# The document's `@tool`, with `hidden`: without it, the model would be asked for the token.
@tool(hidden={"token_id": TokenId})
async def record_blood_pressure(
    token_id: str,             # 第一部分：tokenId（身份标识）
    systolic: int,             # 第二部分：工具的数据结构
    diastolic: int,
    heart_rate: Optional[int] = None,
    record_time: Optional[str] = None,
    notes: Optional[str] = None
) -> str:  # fmt: skip
    # 工具内部数据转换
    user_id = _convert_token_to_user_id(token_id)  # 当前：直接使用 token_id
    stored.append((user_id, systolic, diastolic))  # the document: `...`, the business logic
    return "已记录"


# The document's `@tool`, with `hidden`, for the same reason.
@tool(hidden={"token_id": TokenId})
async def query_blood_pressure(
    token_id: str,             # 第一部分：tokenId
    limit: int = 10,           # 第二部分：工具的数据结构
    offset: int = 0
) -> str:  # fmt: skip
    # 工具内部数据转换
    user_id = _convert_token_to_user_id(token_id)
    return f"{len([each for each in stored if each[0] == user_id])} of {limit}"


@tool
async def query_symptom(limit: int = 10, offset: int = 0) -> str:
    # Plan 2 in a helper function: the wrapper's line, without the wrapper.
    token_id = get_token_id()  # 从上下文获取
    return f"{token_id is not None} {limit}"


TOOL_REGISTRY: Dict[str, Tool] = {}  # the document: BaseTool of LangChain


def register_tool(name: str, each: Tool) -> None:
    TOOL_REGISTRY[name] = each


def init_tools():
    """初始化工具注册表"""
    # 血压工具
    register_tool("record_blood_pressure", record_blood_pressure)
    register_tool("query_blood_pressure", query_blood_pressure)


init_tools()
agent_config = {"tools": ["record_blood_pressure", "query_blood_pressure", "missing"]}
# 从配置中读取工具名称列表
tool_names = agent_config.get("tools", [])
tools = [TOOL_REGISTRY[name] for name in tool_names if name in TOOL_REGISTRY]


async def _run(state: Dict[str, Any], service: ToolService):
    # 从 state 获取 user_id
    user_id = state.get("user_id")

    # 当前场景：token_id = user_id
    # 未来场景：token_id = state.get("token_id")
    token_id = user_id

    # 设置 TokenContext（使用 contextvars）
    with TokenContext(token_id=token_id):  # ← 关键：设置上下文
        # The document: agent_node.ainvoke. Here the call that its model makes.
        result = await service.call("record_blood_pressure", {"systolic": 120, "diastolic": 80})

    return result


def wrap_tool_with_token(tool: Tool, token_id: str) -> Tool:
    """包装工具，自动注入 tokenId"""
    # The document's body copies the tool around `kwargs['token_id'] = token_id`.
    return tool.bind(token_id=token_id)


# --- What it does ------------------------------------------------------------------------------


async def test_plan_2_fills_the_token_that_the_model_does_not_know(tmp_path: Path) -> None:
    stored.clear()
    async with service(tmp_path, *tools, query_symptom) as on:
        state = {"user_id": "user123", "session_id": "session456"}
        outcome = await _run(state, on.tools)
        with TokenContext(token_id="user123"):
            symptoms = await on.tools.call("query_symptom")
        row = await on.row(outcome)

    assert [each.name for each in tools] == ["record_blood_pressure", "query_blood_pressure"]
    assert list(tools[0].parameters["properties"]) == [
        *("systolic", "diastolic", "heart_rate", "record_time", "notes")
    ]
    assert (outcome.result, symptoms.result) == ("已记录", "True 10")
    assert stored == [("user123", 120, 80)]
    assert "user123" not in str({**row, "sessionId": None})


async def test_plans_2_and_3_bind_a_token_to_a_copy_of_the_tool(tmp_path: Path) -> None:
    stored[:] = [("user123", 120, 80)]
    bound = wrap_tool_with_token(query_blood_pressure, "user123")
    async with service(tmp_path, bound) as on:
        outcome = await on.tools.call("query_blood_pressure", {"limit": 5})

    assert outcome.result == "1 of 5"
    assert query_blood_pressure.caller is None


def test_plan_1_that_shows_the_token_to_the_model_is_rejected() -> None:
    with pytest.raises(RegistrationError, match="asks the model for 'token_id'"):

        @tool
        async def record_symptom(token_id: str, symptom_name: str) -> str:
            return symptom_name
