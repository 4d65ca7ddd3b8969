"""Functions whose calls are recorded: what `Tracing.traced` makes."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, get_args

from tracer.client.block import text_of
from tracer.client.rounds import ThinkAct, ToolCall
from tracer.client.work import Plan, Step

if TYPE_CHECKING:
    from tracer.client.tracing import Tracing

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Kind = Literal["plan", "step", "think_act", "tool_call"]
KINDS: tuple[Kind, ...] = get_args(Kind)

YIELDED_CHARACTERS = 1_000_000
"""How much is kept of what a generator yields: it may never end."""

AnyWork = Plan | Step | ThinkAct | ToolCall
StartWork = Callable[[tuple[Any, ...], dict[str, Any]], AnyWork]


def traced(
    tracing: Tracing, kind: Kind, name: str | None, function: Callable[Parameters, Result]
) -> Callable[Parameters, Result]:
    """Return a function that does the same, and records each call; see `Tracing.traced`."""
    start = partial(_work, tracing, kind, name, function)
    wrapper: Callable[..., Any]
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator(start, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(start, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(start, function)
    else:
        wrapper = _plain(start, function)
    return cast(Callable[Parameters, Result], wraps(function)(wrapper))


def _work(
    tracing: Tracing,
    kind: Kind,
    name: str | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> AnyWork:
    """Return what a call of the function is recorded as."""
    arguments = _bound(function, args, kwargs)
    own_name = name or str(getattr(function, "__name__", type(function).__name__))
    match kind:
        case "plan":
            return tracing.plan(own_name, request=_request(arguments))
        case "step":
            return tracing.step(own_name, _request(arguments))
        case "think_act":
            messages = arguments.get("messages")
            return tracing.think_act(
                messages if isinstance(messages, (list, tuple, str)) else [arguments], model=name
            )
        case "tool_call":
            return tracing.tool_call(own_name, arguments)


def _bound(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return what was given to a function, by the names of its parameters."""
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        # It is called wrongly, which it will say itself; or it is one of those that cannot tell.
        return {"args": args, "kwargs": kwargs}
    for position, parameter in enumerate(signature.parameters.values()):
        if position == 0 and parameter.name in ("self", "cls"):
            given.pop(parameter.name, None)
        elif parameter.kind is parameter.VAR_KEYWORD:
            given.update(given.pop(parameter.name, {}))
    return dict(given)


def _request(arguments: dict[str, Any]) -> str | None:
    """Return what was asked: the only text there is, or else all arguments."""
    match list(arguments.values()):
        case []:
            return None
        case [str() as text]:
            return text
        case _:
            return text_of(arguments)


def _plain(start: StartWork, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with start(args, kwargs) as work:
            result = function(*args, **kwargs)
            work.finish(result)
            return result

    return call


def _coroutine(
    start: StartWork, function: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with start(args, kwargs) as work:
            result = await function(*args, **kwargs)
            work.finish(result)
            return result

    return call


# A generator is current while it runs, and not while its reader does: both share a context.


def _generator(
    start: StartWork, function: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        work, yielded = start(args, kwargs), _Yielded()
        work.start()
        error: BaseException | None = None
        try:
            work.wait()
            generator = function(*args, **kwargs)
            go_on = partial(generator.send, None)
            while True:
                with work.as_current():
                    item = go_on()
                yielded.add(item)
                try:
                    go_on = partial(generator.send, (yield item))
                except GeneratorExit:
                    with work.as_current():
                        generator.close()
                    raise
                except BaseException as thrown:
                    go_on = partial(generator.throw, thrown)
        except StopIteration as end:
            return end.value
        except BaseException as raised:
            error = raised
            raise
        finally:
            yielded.end(work, error)
            work.wait()

    return call


def _async_generator(
    start: StartWork, function: Callable[..., AsyncGenerator[Any, Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        work, yielded = start(args, kwargs), _Yielded()
        work.start()
        error: BaseException | None = None
        try:
            await work.durable()
            generator = function(*args, **kwargs)
            go_on: Callable[[], Awaitable[Any]] = partial(generator.asend, None)
            while True:
                with work.as_current():
                    item = await go_on()
                yielded.add(item)
                try:
                    go_on = partial(generator.asend, (yield item))
                except GeneratorExit:
                    with work.as_current():
                        await generator.aclose()
                    raise
                except BaseException as thrown:
                    go_on = partial(generator.athrow, thrown)
        except StopAsyncIteration:
            return
        except BaseException as raised:
            error = raised
            raise
        finally:
            yielded.end(work, error)
            await work.durable()

    return call


class _Yielded:
    """What a generator yielded, as far as it is kept."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._jsons: list[str] = []
        self._characters = 0

    def add(self, item: Any) -> None:
        """Keep an item as it is now: whoever reads it may change it, or use it up."""
        if self._characters < YIELDED_CHARACTERS:
            json = text_of([item]) or ""
            self._jsons.append(json[1:-1])
            self._characters += len(json)
            if isinstance(item, str):
                self._texts.append(item)

    def end(self, work: AnyWork, error: BaseException | None) -> None:
        """End `work` with what was yielded, unless it has ended."""
        result: str | None = None
        if self._jsons:
            is_text = len(self._texts) == len(self._jsons)
            result = "".join(self._texts) if is_text else f"[{','.join(self._jsons)}]"
        if error is None:
            work.finish(result)
            return
        if isinstance(work, (Step, ToolCall)) and not work.has_ended:
            work.result = result
        work.end_with(error)
