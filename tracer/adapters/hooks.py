"""What the adapters share: hooks in a framework's functions, and parameters of models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

import wrapt

from tracer.client.work import ToolCall, Work
from tracer.logs import get_logger
from tracer.recorder import error_location
from tracer.records.prices import TokenUsage, cost_of

# --- Select the parameters of a model request that an adapter records.

NAMES = tuple(
    "temperature top_p top_k max_tokens max_completion_tokens max_output_tokens"
    " frequency_penalty presence_penalty stop stop_sequences seed n logprobs top_logprobs"
    " logit_bias parallel_tool_calls tool_choice response_format reasoning reasoning_effort"
    " thinking verbosity service_tier truncation stream store".split()
)
"""The parameters that are recorded. Others may hold secrets, such as headers."""

_TEXTS = (str, int, float, bool, list, dict)


def parameters_of(settings: Any) -> dict[str, Any]:
    """Return the parameters of a model request that are recorded.

    Args:
        settings: The settings of a request: a mapping, or an object with attributes.
    """
    if isinstance(settings, Mapping):
        values = {name: settings.get(name) for name in NAMES}
    else:
        values = {name: getattr(settings, name, None) for name in NAMES}
    return {name: value for name, value in values.items() if isinstance(value, _TEXTS)}


# --- Install hooks in other libraries and remove them. Errors in a hook never reach the agent.

log = get_logger(__name__)

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called instead of a function, with the function, its instance, and its arguments."""

Uninstall = Callable[[], None]


class log_errors:  # noqa: N801 - used like a function, as `contextlib.suppress`
    """A context manager that logs and suppresses errors of recording, so that the agent continues.

    Exceptions that do not derive from `Exception`, such as `CancelledError`, are raised.
    """

    def __init__(self, hook: str) -> None:
        """Create the context manager. If it logs an error, the log line names the hook."""
        self._hook = hook

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        log.error("adapter_failed", hook=self._hook, error=error_location(error))
        return True


@contextmanager
def current_while(
    call: ToolCall, hook: str, failed: Callable[[BaseException], None]
) -> Iterator[None]:
    """Make a tool call the current work inside a `with` block.

    If the block raises an exception, the exception is recorded and raised again.

    Args:
        call: The tool call that runs.
        hook: The name that the log contains if `failed` itself raises an error.
        failed: Records the exception.
    """
    with call.as_current():
        try:
            yield
        except BaseException as error:
            with log_errors(hook):
                failed(error)
            raise


def wrap(target: ModuleType | type, name: str, wrapper: Wrapper) -> Uninstall:
    """Replace a function or method with a wrapper.

    If this version of the library lacks the function, a warning is logged and nothing changes.

    Args:
        target: The module or the class.
        name: The function's name in it.
        wrapper: The wrapper.

    Returns:
        A function that restores the original. If other code has wrapped the function since, our
        wrapper stays in place but only calls the original.
    """
    is_enabled = True
    if not hasattr(target, name):
        log.warning("hook_not_found", hook=f"{target.__name__}.{name}")
        return lambda: None
    is_own = name in vars(target)
    original = vars(target).get(name)
    replacement = wrapt.wrap_object(
        target, name, wrapt.FunctionWrapper, (wrapper,), {"enabled": lambda: is_enabled}
    )

    def uninstall() -> None:
        nonlocal is_enabled
        is_enabled = False
        if vars(target).get(name) is not replacement:
            return
        if is_own:
            setattr(target, name, original)
        else:
            delattr(target, name)

    return uninstall


def uninstall_all(hooks: list[Uninstall]) -> Uninstall:
    """Return a function that removes all hooks, the last one first."""

    def uninstall() -> None:
        while hooks:
            hooks.pop()()

    return uninstall


def read_prices() -> None:
    """Load the price list in advance.

    Loading takes a third of a second. This would block an event loop for too long.
    """
    cost_of(TokenUsage(0, 0), "gpt-5")


# --- Generators --------------------------------------------------------------------------------


def items_within(
    work: Work, items: Generator[Any, Any, Any], failed: Callable[[Exception], None] | None = None
) -> Iterator[Any]:
    """Iterate over a generator. While the generator's code runs, `work` is the current work.

    Args:
        work: The record that contains everything that the generator records.
        items: The generator. It is closed when the returned iterator is closed.
        failed: Called with the exception, if the generator raises one.
    """
    try:
        while True:
            with work.as_current():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
    except Exception as error:
        if failed is not None:
            failed(error)
        raise
    finally:
        with work.as_current():
            items.close()


async def async_items_within(
    work: Work,
    items: AsyncGenerator[Any, Any],
    failed: Callable[[Exception], None] | None = None,
) -> AsyncIterator[Any]:
    """Iterate over an asynchronous generator; see `items_within`."""
    try:
        while True:
            with work.as_current():
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
            yield item
    except Exception as error:
        if failed is not None:
            failed(error)
        raise
    finally:
        with work.as_current():
            await items.aclose()
