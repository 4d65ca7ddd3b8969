"""Tools: functions and services that a model may call, and the path of one call.

A `Tool` has a name, a description, parameters and a function; `tool` makes one of a Python
function. A `ToolRegistry` has all tools of an application. `ActiveRun` is what the calls of one run
share. `ToolService` calls tools for programs that have no planner.

Each kind of tool has a module of its own. Users import its names from `tracer`.

This package needs the extra `runtime`.

Public modules:

- `call`: the path of one call, and parallel calls
- `parameters`: those that the model supplies, and hidden ones that the runtime fills in
- `config`: tools that are defined in files
"""

from tracer.tools.definition import (
    HookFunction,
    Tool,
    Toolkit,
    ToolOptions,
    ToolType,
    common_state,
    hooks_of,
    tool,
)
from tracer.tools.registry import ToolRegistry, tools_by_name, unknown_tool
from tracer.tools.run import ActiveRun, BudgetLimits, EventRecorder, RunParameters, ToolResources
from tracer.tools.service import CallOutcome, ToolService
from tracer.tools.signature import RunContext, SessionState, hidden_parameters

__all__ = [
    "ActiveRun",
    "BudgetLimits",
    "CallOutcome",
    "EventRecorder",
    "HookFunction",
    "RunContext",
    "RunParameters",
    "SessionState",
    "Tool",
    "ToolOptions",
    "ToolRegistry",
    "ToolResources",
    "ToolService",
    "ToolType",
    "Toolkit",
    "common_state",
    "hidden_parameters",
    "hooks_of",
    "tool",
    "tools_by_name",
    "unknown_tool",
]
