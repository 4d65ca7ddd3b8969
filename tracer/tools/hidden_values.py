"""Filling hidden parameters, for one call."""

from __future__ import annotations

from typing import Any

from tracer.context import ToolContext
from tracer.errors import ToolError
from tracer.logs import get_logger
from tracer.tools.arguments import Arguments
from tracer.tools.definition import Tool
from tracer.tools.hidden import HiddenParameter, Secrets, TokenId, User, UserId, provided
from tracer.tools.run_scope import run_of, token_of
from tracer.tools.session_state import RunContext, SessionState

log = get_logger(__name__)


async def filled(
    tool: Tool, context: ToolContext, run_context: RunContext | None, secrets: Secrets
) -> Arguments:
    """Return the values of a tool's hidden parameters.

    Args:
        tool: The tool.
        context: The call's context.
        run_context: What it may know of its run; there where the tool wants it.
        secrets: Receives what must not be shown.

    Raises:
        MissingIdentity: One of them is about the caller, and nobody said who that is.
        ToolError: A provider failed.
    """
    if context.identity is not None:
        # Whatever the tool is given: what it stands on may know the token as well.
        secrets.add(context.identity.reveal())
    values: Arguments = {}
    for name, each in tool.hidden.items():
        values[name] = await _value(name, each, context, run_context)
        secrets.add(values[name])
    return values


async def _value(
    name: str, parameter: HiddenParameter, context: ToolContext, run_context: RunContext | None
) -> Any:
    if parameter.provider is not None:
        try:
            return await provided(parameter.provider, context)
        except ToolError:
            raise
        except Exception as error:
            # Its words may hold what is to stay hidden.
            log.warning("hidden_parameter_failed", parameter=name, error=type(error).__name__)
            raise ToolError(f"What the tool stands on ({name}) could not be had.") from None
    kind = parameter.kind
    if kind is ToolContext:
        return context
    if kind in (RunContext, SessionState):
        assert run_context is not None
        return run_context if kind is RunContext else run_context.session_state
    if kind is TokenId:
        return token_of(context.identity)
    token_of(context.identity)  # refused here, also outside of any run
    user = await run_of(context).user()
    assert kind in (UserId, User)
    return user.user_id if kind is UserId else user
