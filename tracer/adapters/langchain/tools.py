"""Convert LangChain's tools to tools of Tracer's runtime, and the reverse.

    registry.register(from_langchain(search, hidden={"user_id": UserId}))

    async with ToolService(registry, recorder) as service:
        agent = create_agent(model, [to_langchain(each, service) for each in registry])
        with identity(token_id="…"):
            async with service.run("The user's request", session_id="…"):
                await agent.ainvoke({"messages": [{"role": "user", "content": "…"}]})

A converted tool cannot use these features of a LangGraph graph: state, store, commands and
interrupts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, NoReturn, Unpack, cast

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
)
from langchain_core.tools import Tool as SingleInputTool
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, create_model
from pydantic.fields import FieldInfo

from tracer.concurrency import run_in_thread
from tracer.context import ToolContext
from tracer.errors import InvalidResult, RegistrationError, ToolError
from tracer.records import Status
from tracer.records.results import result_text
from tracer.text import storable
from tracer.tools import CallOutcome, Tool, ToolOptions, ToolService, hidden_parameters
from tracer.tools.parameters import (
    Arguments,
    HiddenParameter,
    Parameter,
    Parameters,
    invalid_arguments,
    parameter_names,
    parameters_from_types,
)

_NOTHING = object()

# --- Theirs as ours ----------------------------------------------------------------------------


def from_langchain(tool: BaseTool, **options: Unpack[ToolOptions]) -> Tool:
    """Convert a LangChain tool to a tool of Tracer's runtime.

    Parameters that LangChain injects (`InjectedToolArg` and its subclasses) become hidden
    parameters: the model never sees them. A parameter for the tool call's id receives our tool-call
    id. The other hidden parameters get their values from `hidden`, or their defaults. LangChain's
    callbacks and tracers never see hidden arguments.

    If the tool raises an error, the call fails. In LangChain, the option `handle_tool_error` can
    return the error to the model as a result; here it only sets the message of the failed call. The
    result of a `content_and_artifact` tool is its content.

    Args:
        tool: The tool. A copy of it is run.
        options: See `tracer.tools.definition.Tool`. `hidden` maps the name of each parameter
            that the runtime fills to the type hint that a tool function would have: `{"user_id":
            UserId, "at": Annotated[Clock, Hidden(get_clock)]}`. `tags` are by default the tags of
            the LangChain tool.

    Raises:
        RegistrationError: An injected parameter has neither a source in `hidden` nor a default. Or
            `hidden` has a name that is not a parameter of the tool or cannot be hidden.
    """
    options.setdefault("tags", tool.tags or ())
    hidden = options.get("hidden", {})
    if isinstance(tool.args_schema, dict):
        of_json = hidden_parameters(tool.name, hidden)
        _check_known(tool, hidden, parameter_names(tool.args_schema))
        return Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.args_schema,
            run=_runner(tool, _filled_json_schema(tool, of_json), of_json),
            **_with_hidden(options, of_json),
        )
    schema = _schema(tool)
    tool = tool.model_copy(update={"args_schema": schema})
    hidden_by_name = _hidden(tool, schema, hidden)
    visible = _visible(tool.name, schema, hidden_by_name)

    def check(arguments: Arguments) -> Arguments:
        # The arguments stay unchanged: LangChain parses them, with the schema's own validators.
        visible.check(arguments)
        return arguments

    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=visible.json_schema,
        check=check,
        run=_runner(tool, _filled_schema(schema, hidden_by_name), hidden_by_name),
        **_with_hidden(options, hidden_by_name),
    )


def _with_hidden(options: ToolOptions, hidden: Mapping[str, HiddenParameter]) -> ToolOptions:
    return {**options, "hidden": hidden}


def _check_known(tool: BaseTool, hidden: Mapping[str, Any], known: Collection[str]) -> None:
    if unknown := hidden.keys() - known:
        raise RegistrationError(
            f"The tool {tool.name!r} has no parameter {min(unknown)!r} to hide. Its parameters "
            f"are: {', '.join(sorted(known)) or 'none'}."
        )


def _filled_json_schema(
    tool: BaseTool, hidden: Mapping[str, HiddenParameter]
) -> type[BaseModel] | dict[str, Any]:
    """Return the schema with which to run a tool whose `args_schema` is a JSON Schema.

    If `args_schema` is a JSON Schema, LangChain shows all arguments to callbacks and tracers. If it
    is a pydantic model, LangChain does not show the injected fields. So a tool with hidden
    parameters gets a pydantic model, whose fields are the hidden parameters. The other arguments
    are extra fields of this model. They were validated earlier.

    Raises:
        RegistrationError: An argument has the name of a method of pydantic's models. LangChain
            would read the method instead of the argument.
    """
    assert isinstance(tool.args_schema, dict)
    if not hidden:
        return tool.args_schema
    names = parameter_names(tool.args_schema)
    if taken := sorted(each for each in names if hasattr(BaseModel, each)):
        raise RegistrationError(
            f"The tool {tool.name!r} has a parameter {taken[0]!r}, which is also a method of "
            "pydantic's models. Rename it, or give the tool a pydantic model as args_schema."
        )
    fields: dict[str, Any] = dict.fromkeys(hidden, (Annotated[Any, InjectedToolArg], ...))
    config = ConfigDict(extra="allow", hide_input_in_errors=True)
    return create_model(tool.name, __config__=config, **fields)


def _schema(tool: BaseTool) -> type[BaseModel]:
    """Return the pydantic model of all of a tool's parameters."""
    if isinstance(tool, SingleInputTool) and tool.args_schema is None:
        return create_model(tool.name, tool_input=(str, ...))
    schema = tool.get_input_schema()
    if not issubclass(schema, BaseModel):
        raise RegistrationError(
            f"The arguments of the tool {tool.name!r} are a model of pydantic 1, which is not "
            "supported. Write it as a model of pydantic 2."
        )
    return schema


def _hidden(
    tool: BaseTool, schema: type[BaseModel], wanted: Mapping[str, Any]
) -> dict[str, HiddenParameter]:
    """Return a tool's hidden parameters: those in `wanted`, and those that LangChain injects."""
    _check_known(tool, wanted, schema.model_fields)
    shown = cast("type[BaseModel]", tool.tool_call_schema).model_fields
    hidden_by_name = hidden_parameters(tool.name, wanted)
    for name, field in schema.model_fields.items():
        if name in shown and name not in wanted:
            continue
        parameter = hidden_by_name.get(name) or _injected(tool.name, name, field)
        aliases = [each for each in (field.alias, field.validation_alias) if isinstance(each, str)]
        hidden_by_name[name] = replace(parameter, aliases=(*parameter.aliases, *aliases))
    return hidden_by_name


def _injected(owner: str, name: str, field: FieldInfo) -> HiddenParameter:
    """Return the hidden parameter for an injected parameter that `hidden` does not name.

    Raises:
        RegistrationError: The parameter needs a value that only a LangGraph graph has.
    """
    if any(_marks_call_id(each) for each in field.metadata):
        return HiddenParameter(field.annotation, lambda context: str(context.tool_call_id))
    if field.is_required():
        raise RegistrationError(
            f"The tool {owner!r} has the injected parameter {name!r}, which only a LangGraph graph "
            f"can fill. State the source of its value, such as hidden={{{name!r}: UserId}}."
        )
    return HiddenParameter(field.annotation, _own_default)


def _own_default() -> object:
    """Return a marker that makes LangChain use the parameter's default without validation."""
    return _NOTHING


def _marks_call_id(value: object) -> bool:
    return isinstance(value, InjectedToolCallId) or value is InjectedToolCallId


def _visible(
    owner: str, schema: type[BaseModel], hidden: Mapping[str, HiddenParameter]
) -> Parameters:
    """Return the parameters that the language model fills in."""
    parameters = {}
    for name, field in schema.model_fields.items():
        if name not in hidden:
            alias = field.validation_alias if isinstance(field.validation_alias, str) else None
            parameters[alias or field.alias or name] = Parameter(
                field.rebuild_annotation(),
                ...
                if field.is_required()
                else field.get_default(call_default_factory=True, validated_data={}),
                field.description,
            )
    return parameters_from_types(owner, parameters)


def _filled_schema(
    schema: type[BaseModel], hidden: Mapping[str, HiddenParameter]
) -> type[BaseModel]:
    """Return the tool's pydantic model with all hidden parameters marked as injected.

    LangChain does not show injected values to callbacks and tracers. With `hide_input_in_errors`,
    error messages do not contain them either.
    """
    fields: dict[str, Any] = {
        name: (Annotated[schema.model_fields[name].annotation, InjectedToolArg], ...)
        for name, each in hidden.items()
        if each.provider is not _own_default
    }
    if not fields:
        return schema
    quiet = {"hide_input_in_errors": True}
    return create_model(schema.__name__, __base__=schema, __cls_kwargs__=quiet, **fields)


def _runner(
    tool: BaseTool,
    schema: type[BaseModel] | dict[str, Any],
    hidden: Mapping[str, HiddenParameter],
) -> Callable[[Arguments, ToolContext], Any]:
    # LangChain must not handle errors: it would return them as results, and the call succeed.
    own = tool.model_copy(
        update={
            "args_schema": schema,
            "handle_tool_error": False,
            "handle_validation_error": False,
        }
    )
    is_async = _is_async(tool)

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        arguments = {name: each for name, each in arguments.items() if each is not _NOTHING}
        # Without an id, LangChain returns the tool's own result. With one, it returns a message.
        call = ToolCall(name=tool.name, args=arguments, id=None, type="tool_call")
        try:
            if is_async:
                return _result(await own.ainvoke(call))
            return _result(await run_in_thread(own.invoke, input=call))
        except ToolException as error:
            _fail(tool, error)
        except ValidationError as error:
            if isinstance(schema, dict) or error.title != _title(schema):
                raise  # raised inside the tool, for another model
            raise _misfit(error, hidden) from None

    return run


def _is_async(tool: BaseTool) -> bool:
    """Return whether a tool is asynchronous.

    A synchronous tool must run in one of Tracer's threads. Otherwise LangChain would run it in one
    of its own threads.
    """
    if isinstance(tool, (StructuredTool, SingleInputTool)):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _result(value: Any) -> Any:
    if isinstance(value, ToolMessage):
        if value.status == "error":
            raise ToolException(value.text)
        return value.content
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, ToolOutputMixin) for each in values):
        raise InvalidResult(
            "The tool returned a LangGraph command. Only a graph can execute commands, and this "
            "tool runs outside of a graph. Do not use this tool."
        )
    return value


def _fail(tool: BaseTool, error: ToolException) -> NoReturn:
    """Raise a tool's error. If `handle_tool_error` defines a message, use it for the error."""
    handler = tool.handle_tool_error
    if isinstance(handler, bool) or handler is None:
        raise error
    message = handler(error) if callable(handler) else handler
    raise ToolException(result_text(message)) from error


def _title(schema: type[BaseModel]) -> str:
    return schema.model_config.get("title") or schema.__name__


def _misfit(error: ValidationError, hidden: Mapping[str, HiddenParameter]) -> ToolError:
    """Return the error for arguments that a tool's own schema rejects.

    The error contains no values of arguments.
    """
    details = error.errors(include_input=False, include_context=False, include_url=False)
    for each in details:
        if each["loc"] and each["loc"][0] in hidden:
            return ToolError(
                f"The value that the runtime provides for the tool's parameter {each['loc'][0]} is "
                "invalid."
            )
    return invalid_arguments([(each["loc"], each["msg"]) for each in details])


# --- Ours as theirs ----------------------------------------------------------------------------


def to_langchain(tool: Tool, service: ToolService) -> BaseTool:
    """Convert a tool of Tracer's runtime to a LangChain tool, for example for `create_agent`.

    The service calls the tool in the current run, with the run's caller identity. The id of
    LangChain's tool call is recorded as the provider call id. If a call fails, the LangChain tool
    returns a `ToolMessage` with the status `error`. If LangChain runs the tool without a tool call,
    a failure raises a `ToolException` instead.

    Args:
        tool: A tool of the service's registry.
        service: The service that calls the tool.

    Raises:
        RegistrationError: The registry has no such tool.
    """
    if service.registry.find(tool.name) is not tool:
        raise RegistrationError(
            f"The tool {tool.name!r} is not in the service's registry, so calls would not find it. "
            "Register it first."
        )
    return _ServiceTool(tool, service)


class _ServiceTool(BaseTool):
    """A LangChain tool that calls a tool of Tracer's runtime by its name."""

    _service: ToolService = PrivateAttr()

    def __init__(self, tool: Tool, service: ToolService) -> None:
        super().__init__(
            name=tool.name,
            description=tool.description,
            # LangChain requires the key `properties`.
            args_schema={"properties": {}, **tool.parameters},
            tags=sorted(tool.tags),
        )
        self._service = service

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # Only this method receives both the tool call's id and the unchanged arguments. They are
        # passed by position, so that a parameter may be named `config` or `run_manager`.
        return (tool_input, tool_call_id), {}

    def _run(self, arguments: str | dict[str, Any], tool_call_id: str | None) -> str | ToolMessage:
        outcome = self._service.call_sync(self.name, arguments, provider_call_id=tool_call_id)
        return self._answer(outcome, tool_call_id)

    async def _arun(
        self, arguments: str | dict[str, Any], tool_call_id: str | None
    ) -> str | ToolMessage:
        outcome = await self._service.call(self.name, arguments, provider_call_id=tool_call_id)
        return self._answer(outcome, tool_call_id)

    def _answer(self, outcome: CallOutcome, tool_call_id: str | None) -> str | ToolMessage:
        text = storable(outcome.for_model)  # providers reject lone surrogates
        if outcome.status is Status.SUCCEEDED:
            return text
        if tool_call_id is None:
            raise ToolException(text)
        return ToolMessage(text, name=self.name, tool_call_id=tool_call_id, status="error")
