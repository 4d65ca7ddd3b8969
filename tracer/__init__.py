"""Tracer records what an LLM agent did, and which tool call started which sub-plan.

The names in `__all__` are the public interface. Import them from here: `from tracer import tool`.
The modules in `tracer.adapters`, one for each agent framework, are public, too. All other modules
are private and may change in any version.

Names are loaded on first use, so that `import tracer` loads no web framework and no database
driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.client.connecting import connect
    from tracer.client.tracing import Tracing
    from tracer.client.work import Chosen
    from tracer.context import ToolContext, identity, in_context, instrument_threads
    from tracer.errors import (
        BadRequest,
        ConfigurationError,
        Denied,
        IdentityUnavailable,
        InvalidArguments,
        InvalidResult,
        MissingIdentity,
        ModelError,
        RegistrationError,
        StateConflict,
        StoreUnavailable,
        ToolError,
        ToolUnavailable,
        TracerError,
        UnknownTool,
    )
    from tracer.recorder.recorder import Recorder
    from tracer.recorder.spool import Spool
    from tracer.records.status import Status
    from tracer.runtime.agent import Agent
    from tracer.runtime.agent_files import read_agents
    from tracer.runtime.application import Application, Surroundings
    from tracer.runtime.chat_model import ChatModel, ChosenCall, Generation, Message, ToolSpec
    from tracer.runtime.launcher import RunLauncher, RunOutcome
    from tracer.runtime.openai_model import OpenAIModel
    from tracer.runtime.plan import PlanTemplate, StepTemplate
    from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
    from tracer.runtime.subplan_tool import subplan_tool
    from tracer.storage.http.writer import HttpWriter
    from tracer.storage.memory.store import MemoryStore
    from tracer.tools.call.active_run import ToolResources
    from tracer.tools.call.batch_tool import batch_tool
    from tracer.tools.call.budget import BudgetLimits
    from tracer.tools.config.tools_toml import read_tools
    from tracer.tools.definition.hidden_parameters import Hidden, TokenId, User, UserId
    from tracer.tools.definition.session_state import RunContext, SessionState
    from tracer.tools.definition.tool import Tool, tool
    from tracer.tools.definition.toolkit import Toolkit
    from tracer.tools.executors.function.executor import stateless_tool
    from tracer.tools.executors.mcp.server import McpConfig, McpServer
    from tracer.tools.executors.rest.config import BasicAuth, BearerAuth, HeaderAuth, RestConfig
    from tracer.tools.executors.rest.executor import rest_tool
    from tracer.tools.executors.stateful.executor import stateful_tool
    from tracer.tools.registry import ToolRegistry
    from tracer.tools.service import CallOutcome, ToolService

__all__ = [
    "Agent",
    "Application",
    "BadRequest",
    "BasicAuth",
    "BearerAuth",
    "BudgetLimits",
    "CallOutcome",
    "ChatModel",
    "Chosen",
    "ChosenCall",
    "ConfigurationError",
    "Denied",
    "Generation",
    "HeaderAuth",
    "Hidden",
    "HttpWriter",
    "IdentityUnavailable",
    "InvalidArguments",
    "InvalidResult",
    "McpConfig",
    "McpServer",
    "MemoryStore",
    "Message",
    "MissingIdentity",
    "ModelError",
    "OpenAIModel",
    "PlanTemplate",
    "Recorder",
    "RegistrationError",
    "RestConfig",
    "RunContext",
    "RunLauncher",
    "RunOutcome",
    "Script",
    "ScriptedModel",
    "SessionState",
    "Spool",
    "StateConflict",
    "Status",
    "StepTemplate",
    "StoreUnavailable",
    "Surroundings",
    "TokenId",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolRegistry",
    "ToolResources",
    "ToolService",
    "ToolSpec",
    "ToolUnavailable",
    "Toolkit",
    "TracerError",
    "Tracing",
    "Turn",
    "UnknownTool",
    "User",
    "UserId",
    "batch_tool",
    "call",
    "connect",
    "identity",
    "in_context",
    "instrument_threads",
    "read_agents",
    "read_tools",
    "rest_tool",
    "stateful_tool",
    "stateless_tool",
    "subplan_tool",
    "tool",
]

_MODULES = {
    "Agent": "tracer.runtime.agent",
    "Application": "tracer.runtime.application",
    "BadRequest": "tracer.errors",
    "BasicAuth": "tracer.tools.executors.rest.config",
    "BearerAuth": "tracer.tools.executors.rest.config",
    "BudgetLimits": "tracer.tools.call.budget",
    "CallOutcome": "tracer.tools.service",
    "ChatModel": "tracer.runtime.chat_model",
    "Chosen": "tracer.client.work",
    "ChosenCall": "tracer.runtime.chat_model",
    "ConfigurationError": "tracer.errors",
    "Denied": "tracer.errors",
    "Generation": "tracer.runtime.chat_model",
    "HeaderAuth": "tracer.tools.executors.rest.config",
    "Hidden": "tracer.tools.definition.hidden_parameters",
    "HttpWriter": "tracer.storage.http.writer",
    "IdentityUnavailable": "tracer.errors",
    "InvalidArguments": "tracer.errors",
    "InvalidResult": "tracer.errors",
    "McpConfig": "tracer.tools.executors.mcp.server",
    "McpServer": "tracer.tools.executors.mcp.server",
    "MemoryStore": "tracer.storage.memory.store",
    "Message": "tracer.runtime.chat_model",
    "MissingIdentity": "tracer.errors",
    "ModelError": "tracer.errors",
    "OpenAIModel": "tracer.runtime.openai_model",
    "PlanTemplate": "tracer.runtime.plan",
    "Recorder": "tracer.recorder.recorder",
    "RegistrationError": "tracer.errors",
    "RestConfig": "tracer.tools.executors.rest.config",
    "RunContext": "tracer.tools.definition.session_state",
    "RunLauncher": "tracer.runtime.launcher",
    "RunOutcome": "tracer.runtime.launcher",
    "Script": "tracer.runtime.scripted_model",
    "ScriptedModel": "tracer.runtime.scripted_model",
    "SessionState": "tracer.tools.definition.session_state",
    "Spool": "tracer.recorder.spool",
    "StateConflict": "tracer.errors",
    "Status": "tracer.records.status",
    "StepTemplate": "tracer.runtime.plan",
    "StoreUnavailable": "tracer.errors",
    "Surroundings": "tracer.runtime.application",
    "TokenId": "tracer.tools.definition.hidden_parameters",
    "Tool": "tracer.tools.definition.tool",
    "ToolContext": "tracer.context",
    "ToolError": "tracer.errors",
    "ToolRegistry": "tracer.tools.registry",
    "ToolResources": "tracer.tools.call.active_run",
    "ToolService": "tracer.tools.service",
    "ToolSpec": "tracer.runtime.chat_model",
    "ToolUnavailable": "tracer.errors",
    "Toolkit": "tracer.tools.definition.toolkit",
    "TracerError": "tracer.errors",
    "Tracing": "tracer.client.tracing",
    "Turn": "tracer.runtime.scripted_model",
    "UnknownTool": "tracer.errors",
    "User": "tracer.tools.definition.hidden_parameters",
    "UserId": "tracer.tools.definition.hidden_parameters",
    "batch_tool": "tracer.tools.call.batch_tool",
    "call": "tracer.runtime.scripted_model",
    "connect": "tracer.client.connecting",
    "identity": "tracer.context",
    "in_context": "tracer.context",
    "instrument_threads": "tracer.context",
    "read_agents": "tracer.runtime.agent_files",
    "read_tools": "tracer.tools.config.tools_toml",
    "rest_tool": "tracer.tools.executors.rest.executor",
    "stateful_tool": "tracer.tools.executors.stateful.executor",
    "stateless_tool": "tracer.tools.executors.function.executor",
    "subplan_tool": "tracer.runtime.subplan_tool",
    "tool": "tracer.tools.definition.tool",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on first use, and return it."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(_MODULES[name])
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("tracer."):
                raise
            from tracer.extras import missing_extra

            raise missing_extra(f"tracer.{name}", "runtime", error) from error
        return getattr(module, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
