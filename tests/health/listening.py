"""A model that follows a script, and keeps what it was given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from tracer.runtime.chat_model import ChatModel, Generation, Message, ToolSpec


class ListeningModel:
    """Answers as another model does.

    Args:
        model: The other model.
    """

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self.heard: list[str] = []
        """Each conversation and the tools offered in it, as JSON."""
        self._model = model

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the other model's answer; see `ChatModel`."""
        given = {"messages": [*map(asdict, messages)], "tools": [*map(asdict, tools)]}
        self.heard.append(json.dumps(given, ensure_ascii=False))
        return await self._model.complete(messages, tools)
