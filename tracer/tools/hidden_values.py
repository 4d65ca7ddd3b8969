"""Values of hidden parameters, for one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracer.context import ToolContext, token_of
from tracer.errors import ToolError
from tracer.logs import get_logger
from tracer.tools.arguments import Arguments
from tracer.tools.hidden import (
    REQUIRED,
    HiddenParameter,
    Secrets,
    TokenId,
    User,
    UserId,
    provided,
)
from tracer.tools.run_scope import run_of
from tracer.tools.session_state import RunContext, SessionState

log = get_logger(__name__)


async def filled(
    parameters: Mapping[str, HiddenParameter],
    context: ToolContext,
    run_context: RunContext | None,
    secrets: Secrets,
) -> Arguments:
    """Return the values of the hidden parameters of a tool or a hook, by name.

    Args:
        parameters: The hidden parameters.
        context: The call's context.
        run_context: The call's run; needed if a parameter has the type of it or of its state.
        secrets: Receives what must not be shown.

    Raises:
        MissingIdentity: A parameter without a default is about the caller, and there is none.
        IdentityUnavailable: The token resolver failed.
        ToolError: A provider failed.
    """
    if context.identity is not None:
        # Also if no parameter asks for the token: a provider's object may know it as well.
        secrets.add(context.identity.reveal())
    values: Arguments = {}
    for name, each in parameters.items():
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
            raise ToolError(f"The value of the hidden parameter {name!r} is unavailable.") from None
    kind = parameter.kind
    if kind is ToolContext:
        return context
    if kind in (RunContext, SessionState):
        assert run_context is not None
        return run_context if kind is RunContext else run_context.session_state
    if context.identity is None and parameter.default is not REQUIRED:
        return parameter.default
    if kind is TokenId:
        return token_of(context.identity)
    token_of(context.identity)  # refused here, also outside of any run
    user = await run_of(context).user()
    assert kind in (UserId, User)
    return user.user_id if kind is UserId else user
