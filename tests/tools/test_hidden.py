"""Hidden parameters: their declaration and the source of their values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NewType

import pytest
from pydantic import BaseModel, Field

from tests.tools.service_bench import service
from tests.tools.tables import not_rejected
from tracer.context import ToolContext, identity
from tracer.errors import RegistrationError
from tracer.tools import RunContext, SessionState, Tool, tool
from tracer.tools.parameters import Hidden, TokenId, User, UserId

TOKEN = "canary-4711-token"

DoctorId = NewType("DoctorId", UserId)


class Doctor(User):
    pass


class Ledger:
    def __init__(self, owner: object) -> None:
        self.owner = owner


def open_ledger() -> Ledger:
    return Ledger("nobody")


def open_ledger_of(context: ToolContext) -> Ledger:
    assert context.identity is not None
    return Ledger(context.identity.reveal())


async def open_ledger_async() -> Ledger:
    return Ledger("nobody")


async def open_ledger_of_async(context: ToolContext) -> Ledger:
    return open_ledger_of(context)


# --- What is hidden ----------------------------------------------------------------------------


def with_hint(hint: Any) -> Tool:
    """Return a tool with one parameter of this type, and one that a model fills."""

    async def show(it: Any, number: int = 0) -> str:
        return f"{number} for {it}"

    show.__annotations__["it"] = hint
    return tool(show)


def test_type_or_hidden_annotation_makes_a_parameter_hidden() -> None:
    hints: list[Any] = [
        ToolContext,
        RunContext,
        SessionState,
        TokenId,
        UserId,
        User,
        Doctor,
        DoctorId,
        Annotated[UserId, Hidden],
        Annotated[UserId, Hidden()],
        Annotated[UserId, "something else"],
        Annotated[Ledger, Hidden(open_ledger)],
        UserId | None,
        TokenId | str,
        ToolContext | None,
        Annotated[UserId | None, Hidden()],
        Annotated[UserId, Hidden()] | None,
        Annotated[str, Hidden(open_ledger)] | None,
        Annotated[Annotated[str, Hidden(open_ledger)], "more"] | int | None,
        Annotated[Annotated[str, Hidden(open_ledger)], Field(description="more")],
    ]
    visible = {
        "type": "object",
        "properties": {"number": {"type": "integer", "default": 0}},
        "additionalProperties": False,
    }
    failures = []
    for hint in hints:
        made = with_hint(hint)
        effective = made.effective_parameters["properties"]
        got = (set(made.hidden), made.parameters, set(effective))
        if got != ({"it"}, visible, {"number", "it"}):
            failures.append(f"{hint}: hidden {got[0]}, visible {got[1]}, effective {got[2]}")
        elif effective["it"]["description"] != "Filled by the runtime.":
            failures.append(f"{hint}: described as {effective['it']}")

    assert failures == []


def test_hidden_parameter_without_a_source_is_rejected() -> None:
    hints: list[Any] = [
        "NowhereToBeFound",
        Annotated[str, Hidden()],
        Annotated[str, Hidden] | None,
        list[UserId],
        dict[str, TokenId],
        list[Annotated[str, Hidden(open_ledger)]],
        dict[str, list[ToolContext | None]],
        Annotated[list[UserId], Field(min_length=1)],
    ]
    assert not_rejected(RegistrationError, with_hint, hints) == []


def test_local_type_of_a_parameter_is_rejected() -> None:
    class Local(User):
        pass

    with pytest.raises(RegistrationError, match="cannot be resolved"):

        @tool
        async def show(who: Local) -> None: ...


class Visible(BaseModel):
    user_id: str


def refused(function: Callable[..., Any]) -> str:
    with pytest.raises(RegistrationError) as caught:
        tool(function)
    return str(caught.value)


def test_visible_parameter_named_like_a_hidden_one_is_rejected() -> None:
    def same(user_id: UserId, userId: str) -> None: ...  # noqa: N803

    def kebab(user_id: UserId, it: Annotated[str, Field(alias="USER-ID")]) -> None: ...

    def aliased(who: Annotated[UserId, Hidden(aliases=("account",))], account: str) -> None: ...

    for each in (same, aliased):
        assert "Rename one" in refused(each)
    # A parameter's own name counts, not the alias that pydantic would know it by.
    assert set(tool(kebab).parameters["properties"]) == {"it"}


async def test_each_provider_supplies_its_hidden_parameter(tmp_path: Path) -> None:
    @tool
    async def owners(
        one: Annotated[Ledger, Hidden(open_ledger)],
        two: Annotated[Ledger, Hidden(open_ledger_of)],
        three: Annotated[Ledger, Hidden(open_ledger_async)],
        four: Annotated[Ledger, Hidden(open_ledger_of_async)],
        five: Annotated[str, Hidden(lambda context, more=5: str(more))],
        six: Annotated[str, Hidden(lambda *given: str(len(given)))],
    ) -> list[bool]:
        all_four = [each.owner == TOKEN for each in (one, two, three, four)]
        return [*all_four, five == "5", six == "0"]

    async with service(tmp_path, owners) as on:
        with identity(token_id=TOKEN):
            outcome = await on.tools.call("owners")

    assert outcome.result == "[false,true,false,true,true,true]"


async def test_every_hidden_type_gets_its_value(tmp_path: Path) -> None:
    seen: list[Any] = []

    @tool
    async def look(
        context: ToolContext,
        run: RunContext,
        state: SessionState,
        token: TokenId,
        user_id: UserId | None,
        user: User,
        doctor: Doctor,
        doctor_id: DoctorId,
    ) -> None:
        seen.extend([context.attempt, run.session_id, dict(state), token])
        seen.extend([user_id, user.info, doctor.user_id, doctor_id])

    def resolve(token_id: str) -> User:
        return Doctor(f"user of {token_id}", {"name": "Ann"})

    resources = {"resolve_token": resolve, "initial_state": {"visits": 1}}
    async with service(tmp_path, look, **resources) as on:
        with identity(token_id=TOKEN):
            outcome = await on.tools.call("look", thread_id="s")

    user_id = f"user of {TOKEN}"
    assert outcome.error is None
    assert seen == [1, "s", {"visits": 1}, TOKEN, user_id, {"name": "Ann"}, user_id, user_id]
