"""Untrusted schemas: no references are fetched, and size and depth are bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.tools.http_servers import http_server, reply
from tracer.errors import InvalidArguments
from tracer.tools.parameters import schema_check


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"below": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (nested(5000), "deep|Recursion"),
        ({"description": "x" * 600_000}, "bytes"),
        ({"type": "no such type"}, "not valid"),
    ],
)
def test_too_large_deep_or_invalid_schema_is_rejected(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        schema_check(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"below": {"$ref": "#"}}},
        {"anyOf": [{"$ref": "#/$defs/0"}, {"if": {}, "then": True}], "$defs": {"0": {}}},
        {"allOf": [{}, {"$ref": "#/allOf/0"}], "dependentSchemas": {"x": {"type": "object"}}},
    ],
)
def test_schema_that_references_itself_is_accepted(schema: dict[str, Any]) -> None:
    assert schema_check(schema)({"below": {"below": {}}}) == {"below": {"below": {}}}


def test_recursive_schema_validates_every_level() -> None:
    tree = {"type": "object", "properties": {"below": {"$ref": "#"}}, "additionalProperties": False}

    with pytest.raises(InvalidArguments, match=r"below\.below"):
        schema_check(tree)({"below": {"below": {"beside": 1}}})


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$schema"])
async def test_schema_references_are_never_fetched(keyword: str) -> None:
    async with http_server(lambda _: reply(json={})) as server:
        with pytest.raises(ValueError, match=r"."):
            await asyncio.to_thread(schema_check, {keyword: f"{server.url}/schema.json"})

    assert server.received == []
