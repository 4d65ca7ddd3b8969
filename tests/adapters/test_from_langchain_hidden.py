"""Hidden parameters of LangChain tools that `from_langchain` converted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel, Field, field_validator

from tests.tools.contexts import Caller
from tests.tools.service_bench import service
from tracer.adapters.langchain import from_langchain
from tracer.context import ToolContext, identity
from tracer.errors import RegistrationError
from tracer.tools.parameters import Hidden, TokenId, UserId

CANARY = "user-canary-4711"


class Noting(BaseCallbackHandler):
    """Notes all that LangChain shows to callbacks."""

    raise_error = True

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def on_tool_start(self, *arguments: Any, **options: Any) -> None:
        self.noted += [arguments, options]

    def on_tool_error(self, error: BaseException, **options: Any) -> None:
        self.noted += [error, options]


class Entry(BaseModel):
    city: str = Field(alias="town", description="Where.")
    user_id: str = Field(alias="userKey")

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such city")
        return city


@langchain_tool(args_schema=Entry)
def visit(city: str, user_id: str) -> str:
    """Visits."""
    return f"{len(user_id)} in {city}"


async def test_rejected_arguments_do_not_appear_in_the_error() -> None:
    ours = from_langchain(visit, hidden={"user_id": Annotated[str, Hidden(lambda: "me")]})
    caller = Caller()
    good = await caller.call(ours, '{"town": "Bern", "userkey": "you"}')
    refused = await caller.call(ours, '{"town": "Atlantis"}')

    assert ours.parameters["properties"] == {"town": {"description": "Where.", "type": "string"}}
    assert good.result == "2 in Bern"
    assert refused.reason == "invalid_arguments"
    assert refused.error is not None
    assert "town: Value error, there is no such city" in refused.error.message
    assert "Atlantis" not in refused.error.message


async def test_hidden_value_of_the_wrong_type_is_a_tool_error() -> None:
    noting = Noting()
    theirs = visit.model_copy(update={"callbacks": [noting]})
    ours = from_langchain(theirs, hidden={"user_id": Annotated[int, Hidden(lambda: 4711)]})
    ending = await Caller().call(ours, '{"town": "Bern"}')

    assert ending.error is not None
    assert ending.reason == "tool_error"
    assert ending.error.message == (
        "The value that the runtime provides for the tool's parameter user_id is invalid."
    )
    assert "4711" not in f"{ending.error.stack}{noting.noted}"


@langchain_tool
async def note(text: str, at: dict[str, str], user_id: str) -> str:
    """Notes."""
    if text == "fail":
        raise ValueError(f"{user_id} cannot write")
    return f"{user_id} wrote {text}"


@langchain_tool
def note_injected(text: str, at: dict[str, str], user_id: Annotated[str, InjectedToolArg]) -> str:
    """Notes."""
    return f"{user_id} wrote {text}"


@pytest.mark.parametrize("theirs", [note, note_injected], ids=lambda each: each.name)
async def test_forged_hidden_arguments_are_replaced_by_the_callers_values(
    theirs: BaseTool, tmp_path: Path
) -> None:
    noting = Noting()
    theirs = theirs.model_copy(update={"callbacks": [noting]})
    ours = from_langchain(theirs, hidden={"user_id": UserId})
    forged = {"text": "hi", "at": {"USER-ID": "b", "place": "here"}, "userId": "mallory"}
    async with service(tmp_path, ours) as on:
        with identity(token_id=CANARY):
            good = await on.tools.call(ours.name, forged)
            bad = await on.tools.call(ours.name, {"text": "fail", "at": {}})
        nobody = await on.tools.call(ours.name, {"text": "hi", "at": {}, "user_id": "mallory"})
        row = await on.row(good)
        events = str(on.events)

    assert list(ours.parameters["properties"]) == ["text", "at"]
    assert (good.status, good.result) == ("succeeded", "[hidden] wrote hi")
    assert row["forgedArguments"] == ["userId"]
    assert "mallory" not in events
    assert nobody.reason == "missing_identity"
    assert CANARY not in events + str(bad)
    assert "mallory" not in str(noting.noted)
    assert CANARY not in str([each for each in noting.noted if not isinstance(each, ValueError)])


async def test_injected_parameter_without_a_hidden_value_is_rejected() -> None:
    @langchain_tool
    def who(
        context: Annotated[Any, InjectedToolArg],
        call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime = None,  # type: ignore[assignment]
        region: Annotated[str, InjectedToolArg] = "eu",
    ) -> list[Any]:
        """Tells who calls."""
        assert isinstance(context, ToolContext)
        return [str(context.tool_call_id) == call_id, runtime, region]

    ours = from_langchain(who, hidden={"context": ToolContext})
    caller = Caller()
    ending = await caller.call(ours, '{"region": "us", "call_id": "forged", "RUNTIME": {}}')

    assert ours.parameters["properties"] == {}
    assert ending.result == '[true,null,"eu"]'
    assert caller.notes.forged_arguments == {"region", "call_id", "RUNTIME"}
    with pytest.raises(RegistrationError, match="injected parameter 'context'"):
        from_langchain(who)


@dataclass
class Ledger:
    """Cannot be copied into JSON: it holds itself."""

    owner: object = None


async def test_hidden_parameter_may_have_any_type() -> None:
    ledger = Ledger()
    ledger.owner = ledger

    @langchain_tool
    def book(amount: int, into: Annotated[Any, InjectedToolArg]) -> bool:
        """Books."""
        return into is ledger

    ours = from_langchain(book, hidden={"into": Annotated[Ledger, Hidden(lambda: ledger)]})
    ending = await Caller().call(ours, '{"amount": 1}')

    assert ending.result == "true"


def with_schema(*names: str) -> BaseTool:
    """Return a tool whose arguments have a JSON Schema instead of a pydantic model."""
    return StructuredTool.from_function(
        lambda **arguments: arguments,
        name="loose",
        description="Takes a JSON Schema.",
        args_schema={
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": list(names),
        },
    )


loose = with_schema("number")
awkward = with_schema("token_id", "copy")


async def test_parameter_of_a_json_schema_can_be_hidden(tmp_path: Path) -> None:
    noting = Noting()
    theirs = with_schema("text", "token_id").model_copy(update={"callbacks": [noting]})
    ours = from_langchain(theirs, hidden={"token_id": TokenId})
    async with service(tmp_path, ours) as on:
        with identity(token_id=CANARY):
            outcome = await on.tools.call("loose", {"text": "hi", "tokenId": "mallory"})
        row = await on.row(outcome)

    assert ours.parameters["properties"] == {"text": {"type": "string"}}
    assert ours.parameters["required"] == ["text"]
    assert outcome.result == '{"token_id":"[hidden]","text":"hi"}'
    assert row["forgedArguments"] == ["tokenId"]
    assert "mallory" not in str(on.events)
    assert CANARY not in str(on.events) + str(noting.noted)


@pytest.mark.parametrize(
    ("theirs", "hidden", "said"),
    [
        (note, {"userid": UserId}, "no parameter 'userid'.*at, text, user_id"),
        (note, {"user_id": str}, "nothing determines its value"),
        (loose, {"token_id": UserId}, "no parameter 'token_id'.*: number"),
        (awkward, {"token_id": TokenId}, "method of pydantic's models"),
    ],
)
def test_parameter_that_cannot_be_hidden_is_rejected_at_registration(
    theirs: BaseTool, hidden: dict[str, Any], said: str
) -> None:
    with pytest.raises(RegistrationError, match=said):
        from_langchain(theirs, hidden=hidden)
