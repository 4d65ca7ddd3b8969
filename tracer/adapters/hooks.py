"""Hooks of ours in libraries of others: put in, taken back, and never in the way."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

import wrapt

from tracer.client.block import Work
from tracer.client.work import ToolCall
from tracer.logs import get_logger
from tracer.recorder.counts import error_location
from tracer.records.prices import TokenUsage, cost_of

log = get_logger(__name__)

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""What is called instead, with what it wraps, the object whose method that is, and arguments."""

TakeBack = Callable[[], None]


class unharmed:  # noqa: N801 - read as the sentence that it is
    """Log what goes wrong with recording within, and let the agent go on."""

    def __init__(self, hook: str) -> None:
        """Name the hook as the log calls it."""
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
    """Make a call the current work within; what is raised there is told, and goes on.

    Args:
        call: The call that runs.
        hook: Names what may go wrong in `failed`, as the log calls it.
        failed: Records what was raised.
    """
    with call.as_current():
        try:
            yield
        except BaseException as error:
            with unharmed(hook):
                failed(error)
            raise


def wrap(target: ModuleType | type, name: str, wrapper: Wrapper) -> TakeBack:
    """Call a wrapper instead of a function or method.

    Where a version of the library does not have it, that is logged, and nothing is wrapped.

    Args:
        target: The module, or the class.
        name: The function's name there.
        wrapper: What is called instead.

    Returns:
        What takes it back. If others have wrapped it since, ours stays and does nothing.
    """
    is_wanted = True
    if not hasattr(target, name):
        log.warning("hook_not_found", hook=f"{target.__name__}.{name}")
        return lambda: None
    is_own = name in vars(target)
    original = vars(target).get(name)
    ours = wrapt.wrap_object(
        target, name, wrapt.FunctionWrapper, (wrapper,), {"enabled": lambda: is_wanted}
    )

    def take_back() -> None:
        nonlocal is_wanted
        is_wanted = False
        if vars(target).get(name) is not ours:
            return
        if is_own:
            setattr(target, name, original)
        else:
            delattr(target, name)

    return take_back


def all_of(hooks: list[TakeBack]) -> TakeBack:
    """Return what takes all of these back, the last one first."""

    def take_back() -> None:
        while hooks:
            hooks.pop()()

    return take_back


def read_prices() -> None:
    """Have the price list there: it takes a third of a second, too long for an event loop."""
    cost_of(TokenUsage(0, 0), "gpt-5")


# --- Generators --------------------------------------------------------------------------------


def items_within(
    work: Work, items: Generator[Any, Any, Any], failed: Callable[[Exception], None] | None = None
) -> Iterator[Any]:
    """Run a generator with some work current; between its items, that of its reader is.

    Args:
        work: The work.
        items: The generator, which is closed with this one.
        failed: Told what it raises.
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
    """Run an asynchronous generator with some work current; see `items_within`."""
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
