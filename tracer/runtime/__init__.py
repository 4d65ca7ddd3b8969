"""The planner runtime: turns requests into plans, runs the plans, and records each step.

An `Application` has agents, a model and tools; a `RunLauncher` starts its runs. A run repeats
rounds, each with one model call and the tool calls that it requests. `subplan_tool` makes a tool of
an agent, whose plan then names the call that opened it.

This package needs the extra `runtime`.

Public modules:

- `chat_model`: the interface of language models
- `openai_model`: models behind an OpenAI-compatible API; it loads the package `openai`
- `scripted_model`: a model that follows a script
- `agent_files`: agents that are defined in files; it loads the package `yaml`
- `launcher`: launchers with their resources, and the outcomes of runs
"""

from tracer.runtime.application import Agent, Application, PlanTemplate, StepTemplate, Surroundings
from tracer.runtime.launcher import RunLauncher
from tracer.runtime.loop import subplan_tool

__all__ = [
    "Agent",
    "Application",
    "PlanTemplate",
    "RunLauncher",
    "StepTemplate",
    "Surroundings",
    "subplan_tool",
]
