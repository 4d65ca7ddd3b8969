"""Arguments that a model or a hook supplies for a hidden parameter are removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, Field

from tests.tools.service_bench import Service, service
from tracer.context import identity
from tracer.tools import tool
from tracer.tools.parameters import Hidden, TokenId, UserId, normalized_name, without_forged

TOKEN = "canary-4711-token"


@tool
async def record(
    user_id: UserId,
    token: Annotated[TokenId, Hidden(aliases=("bearer",)), Field(alias="X-Auth")],
    more: Annotated[str, Hidden(lambda: "ours"), Field(validation_alias=AliasChoices("m1", "m2"))],
    note: dict[str, Any] | list[Any] | str = "",
) -> str:
    """Check the trusted values and return the rest."""
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
    "with anything in it": ({"user_id": {"user_id": ["eve"]}}, ["user_id"], ""),
    "with data of the same name": (
        {"userId": "eve", "note": [{"user_id": "u-9"}, {"a": {"user_id": "u-8"}}]},
        ["userId"],
        [{"user_id": "u-9"}, {"a": {"user_id": "u-8"}}],
    ),
}


def resolve_trusted(token_id: str) -> str:
    assert token_id == TOKEN
    return "trusted user"


async def wrong_records(on: Service, tool_name: str, arguments: str, case: str) -> list[str]:
    """Call a tool and return what is wrong with the outcome and the record of a case."""
    _, forged, rest = FORGERIES[case]
    with identity(token_id=TOKEN):
        outcome = await on.tools.call(tool_name, arguments)
    row = await on.row(outcome)
    effective = json.loads(row["effectiveArguments"] or "{}")
    left = set(effective) & set(forged)
    expected = {
        "error": None,
        "result": rest,
        "forged": sorted(forged),
        "arguments": set(json.loads(arguments)),
        "forged values in the records": False,
        "left in the effective arguments": set(),
        "endings": 1,
    }
    got = {
        "error": outcome.error,
        "result": json.loads(outcome.result or "null"),
        "forged": row["forgedArguments"],
        "arguments": set(json.loads(row["arguments"])),
        "forged values in the records": "eve" in str(on.events),
        "left in the effective arguments": left,
        "endings": len(on.endings(outcome)),
    }
    return [
        f"{case}, {tool_name}: {name}: expected {value}, got {got[name]}"
        for name, value in expected.items()
        if got[name] != value
    ]


async def test_arguments_forged_by_a_model_are_removed_and_recorded(tmp_path: Path) -> None:
    failures = []
    async with service(tmp_path, record, resolve_token=resolve_trusted) as on:
        for case, (arguments, _, _) in FORGERIES.items():
            text = json.dumps(arguments, ensure_ascii=False)
            failures += await wrong_records(on, "record", text, case)

    assert failures == []


async def test_arguments_forged_by_a_hook_are_removed_and_recorded(tmp_path: Path) -> None:
    forging: list[dict[str, Any]] = []

    async def forge_async(next: Callable[..., Any]) -> Any:
        return await next(forging[-1])

    def forge(next: Callable[..., Any]) -> Any:
        return next(forging[-1])

    tools = [
        replace(record, name=each.__name__, tool_hooks=[each]) for each in (forge, forge_async)
    ]
    failures = []
    async with service(tmp_path, *tools, resolve_token=resolve_trusted) as on:
        for case, (arguments, _, _) in FORGERIES.items():
            forging.append(arguments)
            for each in tools:
                failures += await wrong_records(on, each.name, "{}", case)

    assert failures == []


async def test_hooks_do_not_see_forged_arguments(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def look(next: Callable[..., Any], arguments: Any, call: Any) -> Any:
        seen.extend([dict(arguments), dict(call.arguments)])
        return await next(arguments)

    hooked = replace(record, tool_hooks=[look])
    async with service(tmp_path, hooked, resolve_token=resolve_trusted) as on:
        with identity(token_id=TOKEN):
            await on.tools.call("record", {"user_id": "eve", "note": [{"user_id": "u-9"}]})

    assert seen == [{"note": [{"user_id": "u-9"}]}] * 2


def test_forged_value_of_a_duplicate_key_is_not_recorded() -> None:
    recorded = record.without_forged_values('{"user_id": "eve", "user_id": "[hidden]"}')

    assert json.loads(recorded) == {"user_id": "[hidden]"}
    assert "eve" not in recorded


async def test_unknown_argument_is_rejected_and_not_removed(tmp_path: Path) -> None:
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
def test_only_arguments_with_hidden_names_are_removed(
    arguments: dict[str, Any],
) -> None:
    cleaned, forged = without_forged(arguments, frozenset({"userid"}))

    assert forged == {each for each in arguments if normalized_name(each) == "userid"}
    assert cleaned == {name: arguments[name] for name in arguments.keys() - forged}
