"""A run's stream as a client reads it, and the tree that it folds the messages into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx2
import orjson
from pydantic.alias_generators import to_camel

from tests.trees import Node, complete
from tracer.records.merge import RULES

ID_NAMES = {kind.value: to_camel(rules.id_field) for kind, rules in RULES.items()}


@dataclass(frozen=True)
class Message:
    """One event of a stream."""

    event: str
    id: int | None
    data: Any


@asynccontextmanager
async def watching(
    client: httpx2.AsyncClient, root: UUID, last_event_id: int | None = None, **asked: int
) -> AsyncIterator[AsyncIterator[Message]]:
    """Give the messages of a run's stream while inside."""
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    path = f"/api/runs/{root}/events"
    async with client.stream("GET", path, params=asked, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _messages(answer)


async def _messages(answer: httpx2.Response) -> AsyncIterator[Message]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line == "" and "data" in fields:
            number = fields.get("id")
            data = orjson.loads(fields["data"])
            event = fields.get("event", "message")
            yield Message(event, None if number is None else int(number), data)
        if line == "":
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


@dataclass
class Folded:
    """A run's records as a client has them."""

    revision: int = 0
    rows: dict[tuple[str, str], Node] = field(default_factory=dict)

    def fold(self, message: Message) -> None:
        assert message.event == "message", f"expected changes, got {message.event!r}"
        revision = message.id or 0
        assert revision > self.revision, f"expected more than {self.revision}, got {revision}"
        for each in message.data["removed"]:
            self.rows.pop((each["kind"], each["id"]), None)
        for row in message.data["changed"]:
            self.rows.update(flattened(complete(row)))
        self.revision = revision

    async def until(self, messages: AsyncIterator[Message], revision: int) -> None:
        """Fold messages in until the run is as far as `revision`."""
        while self.revision < revision:
            self.fold(await anext(messages))


def flattened(top: Node) -> dict[tuple[str, str], Node]:
    """Return the nodes of a tree by kind and id, without what the tree made of them."""
    made = {"own", "cumulative", "subPlanCount", "parentActToolCall", "unplaced"}
    made |= {"revision", "behind", "failureOrigins"}
    made |= {"agentExecutions", "thinkActs", "toolCalls", "subPlans"}
    found: dict[tuple[str, str], Node] = {}
    waiting = [top]
    while waiting:
        node = waiting.pop()
        for children in ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced"):
            waiting += node.get(children, [])
        key = node["kind"], node[ID_NAMES[node["kind"]]]
        found[key] = {name: value for name, value in node.items() if name not in made}
    return found
