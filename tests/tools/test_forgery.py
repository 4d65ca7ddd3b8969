"""What a model, or a hook, gives under the name of a hidden parameter is taken out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, Field

from tests.tools.service_bench import Service, service
from tracer.context import identity
from tracer.redaction import standard_redaction
from tracer.tools.definition import tool
from tracer.tools.hidden import (
    Hidden,
    TokenId,
    UserId,
    spelt_alike,
    without_forged,
)

TOKEN = "canary-4711-token"


@tool
async def record(
    user_id: UserId,
    token: Annotated[TokenId, Hidden(aliases=("bearer",)), Field(alias="X-Auth")],
    more: Annotated[str, Hidden(lambda: "ours"), Field(validation_alias=AliasChoices("m1", "m2"))],
    note: dict[str, Any] | list[Any] | str = "",
) -> str:
    """Answers whether it was given what is trusted, and the rest."""
    assert (user_id, token, more) == ("trusted user", TOKEN, "ours")
    return json.dumps(note)


FORGERIES: dict[str, tuple[dict[str, Any], list[str], Any]] = {
    "top level": ({"user_id": "eve", "note": "n"}, ["user_id"], "n"),
    "camel case": ({"userId": "eve"}, ["userId"], ""),
    "kebab": ({"USER-ID": "eve"}, ["USER-ID"], ""),
    "with spaces and dots": ({"user id": 1, "user.id": 2}, ["user id", "user.id"], ""),
    "full width": ({"ｕｓｅｒ＿ｉｄ": "eve"}, ["ｕｓｅｒ＿ｉｄ"], ""),
    "long s": ({"uſer_id": "eve"}, ["uſer_id"], ""),
    "alias": ({"bearer": "eve", "xAuth": "eve"}, ["bearer", "xAuth"], ""),
    "validation aliases": ({"m1": "eve", "M2": "eve"}, ["M2", "m1"], ""),
    "nested": ({"note": {"a": {"user_id": "eve", "b": 1}}}, ["note.a.user_id"], {"a": {"b": 1}}),
    "in a list": (
        {"note": [{"token": "eve"}, [{"TOKEN": "eve", "b": 1}]]},
        ["note.0.token", "note.1.0.TOKEN"],
        [{}, [{"b": 1}]],
    ),
    "with anything in it": ({"user_id": {"user_id": [None]}}, ["user_id"], ""),
}


def resolve_trusted(token_id: str) -> str:
    assert token_id == TOKEN
    return "trusted user"


async def check_forged(on: Service, arguments: str, forged: list[str], rest: Any) -> None:
    with identity(token_id=TOKEN):
        outcome = await on.tools.call("record", arguments)
    row = await on.row(outcome)

    assert outcome.error is None
    assert json.loads(outcome.result or "") == rest
    assert row["forgedArguments"] == sorted(forged)
    assert row["arguments"] == standard_redaction().text(arguments)
    assert len(on.endings(outcome)) == 1


@pytest.mark.parametrize("name", FORGERIES)
async def test_what_a_model_forges_is_taken_out_and_its_name_recorded(
    tmp_path: Path, name: str
) -> None:
    arguments, forged, rest = FORGERIES[name]
    async with service(tmp_path, record, resolve_token=resolve_trusted) as on:
        await check_forged(on, json.dumps(arguments, ensure_ascii=False), forged, rest)


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_hook_forges_is_taken_out_and_its_name_recorded(
    tmp_path: Path, name: str, is_async: bool
) -> None:
    arguments, forged, rest = FORGERIES[name]

    async def forge_async(next: Callable[..., Any]) -> Any:
        return await next(arguments)

    hooked = replace(record, hooks=[forge_async if is_async else lambda next: next(arguments)])
    async with service(tmp_path, hooked, resolve_token=resolve_trusted) as on:
        await check_forged(on, "{}", forged, rest)
        [[row]] = [
            (await on.rows(each.root_plan_id)).tool_calls
            for each in on.events
            if each.type == "plan_started"
        ]

    effective = json.loads(row["effectiveArguments"] or "{}")
    assert not _names(effective) & {spelt_alike(each.rpartition(".")[2]) for each in forged}


def _names(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {spelt_alike(name) for name in value}.union(*map(_names, value.values()), set())
    return set().union(*map(_names, value)) if isinstance(value, list) else set()


async def test_hooks_see_nothing_of_what_a_model_forged(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def look(next: Callable[..., Any], arguments: Any, call: Any) -> Any:
        seen.extend([dict(arguments), dict(call.arguments)])
        return await next(arguments)

    hooked = replace(record, hooks=[look])
    async with service(tmp_path, hooked, resolve_token=resolve_trusted) as on:
        with identity(token_id=TOKEN):
            await on.tools.call("record", {"user_id": "eve", "note": [{"token": "eve"}]})

    assert seen == [{"note": [{}]}] * 2


async def test_an_unknown_name_is_refused_and_not_taken_out(tmp_path: Path) -> None:
    async with service(tmp_path, record, resolve_token=resolve_trusted) as on:
        with identity(token_id=TOKEN):
            outcome = await on.tools.call("record", {"usr_id": "eve"})
        row = await on.row(outcome)

    assert outcome.reason == "invalid_arguments"
    assert row["forgedArguments"] == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("user_id"), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text() | st.sampled_from(["user_id", "userId", "ＵserId"]), json_values))
def test_nothing_forbidden_is_left_anywhere_and_nothing_else_is_taken(
    arguments: dict[str, Any],
) -> None:
    forbidden = frozenset({"userid"})
    cleaned, forged = without_forged(arguments, forbidden)

    assert not _names(cleaned) & forbidden
    assert (not forged) == (cleaned == arguments)
    assert without_forged(cleaned, forbidden) == (cleaned, frozenset())
