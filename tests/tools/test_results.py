"""The text that a tool's result or error becomes."""

import csv
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tests.tools.contexts import some_context
from tracer.context import Identity, ToolContext
from tracer.records.results import (
    Ending,
    cancelled,
    error_info,
    failed,
    model_view,
    result_text,
    succeeded,
    timed_out,
)


class Shouting(str):
    def __str__(self) -> str:
        return "SHOUT"


class Opaque:
    def __repr__(self) -> str:
        return "Opaque()"


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@dataclass
class Mixed:
    number: int
    thing: object


@pydantic_dataclass(slots=True, frozen=True)
class Slotted:
    things: list[Any]


class Sly(dict[str, Any]):
    def keys(self) -> Any:
        return ["other"]

    def __iter__(self) -> Iterator[str]:
        return iter(["other"])


def endless() -> Iterator[int]:
    while True:
        yield 1


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")

    thing: Any


def map_all(items: list[str]) -> Iterator[int]:
    return map(int, items)


def circle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def abyss() -> list[Any]:
    items: list[Any] = []
    for _ in range(100_000):
        items = [items]
    return items


def test_string_result_becomes_the_same_text() -> None:
    texts = ["", "plain", "a\0b", "\ud800", "\ud83d lone", "␛0000", "x" * 5_000_000, "血压"]
    assert [text[:100] for text in texts if result_text(text) != text] == []


def test_other_values_become_json_or_a_description() -> None:
    here = __name__
    expected: list[tuple[object, str]] = [
        (None, "null"),
        (Shouting("quiet"), "quiet"),
        ({"a": [1, 2.5, True]}, '{"a":[1,2.5,true]}'),
        (math.nan, "NaN"),
        ([math.inf, -math.inf], "[Infinity,-Infinity]"),
        ({"a": "x\0y"}, '{"a":"x\\u0000y"}'),
        ({"a": "\ud800", "n": math.nan}, '{"a":"\\ud800","n":NaN}'),
        (datetime(2026, 1, 1, tzinfo=UTC), '"2026-01-01T00:00:00Z"'),
        (Decimal("1.10"), '"1.10"'),
        (10**400, "1" + "0" * 400),
        (b"\xff\0", '{"type":"builtins.bytes","base64":"/wA="}'),
        ({"b": b"ab"}, '{"b":"YWI="}'),
        (Mixed(1, 2), '{"number":1,"thing":2}'),
        (Slotted([[1]]), '{"things":[[1]]}'),
        (Sly(a=[[1]]), '{"a":[[1]]}'),
        (Opaque(), f'{{"type":"{here}.Opaque","repr":"Opaque()"}}'),
        ([Opaque()], f'[{{"type":"{here}.Opaque","repr":"Opaque()"}}]'),
        ([Unspeakable()], f'[{{"type":"{here}.Unspeakable","repr":null}}]'),
        (circle(), '{"type":"builtins.list","repr":"[[...]]"}'),
        (abyss(), '{"type":"builtins.list","repr":null}'),
        ({Opaque(): 1}, '{"type":"builtins.dict","repr":"{Opaque(): 1}"}'),
        ({"\ud800": 1}, '{"type":"builtins.dict","repr":"{\'\\\\ud800\': 1}"}'),
    ]
    failures = [
        f"{type(value).__name__}: expected {text[:200]}, got {result[:200]}"
        for value, text in expected
        if (result := result_text(value)) != text
    ]
    assert failures == []


def test_returned_generator_is_described_and_not_run() -> None:
    assert orjson.loads(result_text(endless()))["type"] == "builtins.generator"


def held_in(iterator: Iterator[int]) -> list[object]:
    class Made(Enum):
        ONE = iterator

    return [
        iterator,
        {"rows": iterator},
        [1, (iterator,)],
        {iterator},
        deque([iterator]),
        Mixed(1, iterator),
        [Loose(thing=iterator, more=[1])],
        Loose(thing=1, more=iterator),
        Made.ONE,
    ]


def test_returned_iterator_is_described_and_not_consumed() -> None:
    makers: list[Callable[[list[str]], Iterator[Any]]] = [
        iter,
        lambda items: (each for each in items),
        csv.reader,
        map_all,
    ]
    failures = []
    for make in makers:
        for index in range(len(held_in(iter([])))):
            iterator = make(["1", "2", "3"])
            kind = type(iterator).__qualname__
            text = result_text(held_in(iterator)[index])
            if (left := len(list(iterator))) != 3 or kind not in text:
                failures.append(f"{kind} in place {index}: {left} of 3 items left, told {text}")

    assert failures == []


class Streaming(BaseModel):
    stream: Any
    key: str = Field("k-4711", exclude=True)


def test_excluded_pydantic_field_is_not_in_a_result_with_an_iterator() -> None:
    recorded = orjson.loads(result_text(Streaming(stream=endless())))

    assert recorded == {
        "stream": {"type": "builtins.generator", "repr": recorded["stream"]["repr"]}
    }


class Meddling:
    """Changes what holds it while it is written."""

    def __init__(self, change: Callable[[], object]) -> None:
        self.change = change

    def __repr__(self) -> str:
        self.change()
        return "Meddling()"


def test_result_that_changes_while_it_is_serialized_is_complete() -> None:
    held: dict[str, Any] = {}
    held |= {"a": Meddling(lambda: held.update({str(len(held)): 1})), "b": 2}
    items: list[Any] = []
    items += [Meddling(items.clear), 1]

    assert list(orjson.loads(result_text({"held": held}))["held"]) == ["a", "b"]
    assert orjson.loads(result_text(items))[1] == 1


def test_values_beside_an_iterator_in_a_result_are_serialized() -> None:
    recorded = orjson.loads(
        result_text({"rows": endless(), "at": datetime(2026, 1, 1, tzinfo=UTC)})
    )

    assert (recorded["at"], recorded["rows"]["type"]) == (
        "2026-01-01T00:00:00Z",
        "builtins.generator",
    )


def test_returned_context_does_not_contain_the_token() -> None:
    context = some_context()
    returned = ToolContext(
        tool_call_id=None,
        root_plan_id=context.root_plan_id,
        plan_id=context.plan_id,
        step_id=context.step_id,
        identity=Identity("token-4711"),
    )

    assert "token-4711" not in result_text(returned) + repr(returned) + result_text([returned])
    assert returned.identity is not None
    assert returned.identity.reveal() == "token-4711"


def test_error_is_recorded_with_class_message_and_stack() -> None:
    try:
        raise ValueError("bad\0value")
    except ValueError as error:
        info = error_info(error)

    assert (info.type, info.message) == ("ValueError", "bad␛0000value")
    assert info.stack is not None
    assert info.stack.splitlines()[-1] == "ValueError: bad␛0000value"


def test_error_without_a_usable_message_is_named_by_its_class() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "Broken" in error_info(Broken()).message
    assert error_info(KeyError()).message == "KeyError"


def test_model_receives_start_and_end_of_a_long_result() -> None:
    view = model_view("a" * 100 + "b" * 100, limit=20)

    assert view == "a" * 10 + "\n[… 180 characters left out …]\n" + "b" * 10
    assert model_view("short") == "short"


class Picky(ValueError):
    reason = "ours, not theirs"


def test_model_receives_the_outcome_of_its_call() -> None:
    expected: list[tuple[Ending, str]] = [
        (succeeded("fine"), "fine"),
        (succeeded(None), ""),
        (
            timed_out("Too slow."),
            '{"error": {"status": "failed", "reason": "timed_out", "type": "TimeoutError", '
            '"message": "Too slow."}}',
        ),
        (cancelled("asked"), '{"error": {"status": "cancelled", "reason": "asked"}}'),
        (
            failed(Picky("no")),
            '{"error": {"status": "failed", "reason": "tool_error", '
            f'"type": "{__name__}.Picky", "message": "no"}}}}',
        ),
    ]
    assert [ending.for_model() for ending, _ in expected] == [recorded for _, recorded in expected]
