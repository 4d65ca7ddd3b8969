"""The sub-plan tool: offers a plan template to models as a tool."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic_core import to_jsonable_python

from tracer.context import PlanOnPath, ToolContext
from tracer.errors import DepthLimitReached, MissingToolCallId, PlanCycle, ToolError
from tracer.records.status import Reason, Status
from tracer.runtime.application import application_run_of
from tracer.runtime.plan import PlanTemplate
from tracer.runtime.plan_runner import PlanContext, PlanDetails, PlanRunner
from tracer.tasks import capped_deadline
from tracer.tools.definition.results import result_text
from tracer.tools.definition.tool import Tool, ToolType


class SubPlanFailed(ToolError):
    """The sub-plan failed."""

    reason = Reason.SUBPLAN_FAILED.value


class SubPlanTimedOut(ToolError):
    """The sub-plan timed out."""

    reason = Reason.TIMED_OUT.value


def subplan_tool(template: PlanTemplate) -> Tool:
    """Return a tool that runs the template's plan, and returns its result.

    Raises:
        RegistrationError: A parameter of the template has a type that cannot be read from JSON.
    """
    parameters = template.typed_parameters()

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        return await _run_sub_plan(template, arguments, context)

    return Tool(
        name=template.name,
        description=template.description,
        parameters=parameters.json_schema,
        check=parameters.check,
        run=run,
        tool_type=ToolType.SUBPLAN,
        ends_by_itself=True,
        opens_plans=True,
    )


async def _run_sub_plan(
    template: PlanTemplate, arguments: dict[str, Any], context: ToolContext
) -> str:
    if context.tool_call_id is None:
        raise MissingToolCallId
    run = application_run_of(context)
    depth = context.depth + 1
    if depth > run.application.max_depth:
        raise DepthLimitReached(
            f"Sub-plans are nested {context.depth} deep already, which is the limit. Do the "
            "task without another sub-plan."
        )
    here = PlanOnPath(template.name, _digest(arguments))
    if here in context.path:
        raise PlanCycle(
            f"The sub-plan {template.name!r} with the same arguments opened this plan, directly or "
            "indirectly. Opening it again would never end. Use other arguments, or do the task "
            "without it."
        )
    plan = template.filled(arguments)
    requests = [step.request for step in plan.steps]
    agents = {run.application.agent(step.agent).name for step in plan.steps}
    plan_id = run.new_id()
    limits = template.budget
    run.open_budget(plan_id, context.plan_id, limits)
    timeout = capped_deadline(context.deadline, template.timeout)
    runner = PlanRunner(
        run,
        PlanContext(
            plan_id=plan_id,
            parent_plan_id=context.plan_id,
            tool_call_id=context.tool_call_id,
            depth=depth,
            deadline=capped_deadline(timeout, limits.seconds if limits else None),
            identity=context.identity,
            path=(*context.path, here),
            holds_limit=context.holds_limit,
        ),
        PlanDetails(
            title=plan.title,
            user_request="\n".join(requests),
            agent_name=agents.pop() if len(agents) == 1 else None,
            template=template.name,
            template_version=template.version,
        ),
        plan,
    )
    ending = await runner.run()
    if ending.status is Status.SUCCEEDED:
        return ending.result or ""
    message = ending.error.message if ending.error else ending.status.value
    if ending.reason == Reason.TIMED_OUT:
        raise SubPlanTimedOut(message)
    raise SubPlanFailed(f"The sub-plan {plan.title!r} failed. {message}")


def _digest(arguments: dict[str, Any]) -> str:
    """Return a digest of arguments, which a context stores in place of the arguments."""
    try:
        comparable = to_jsonable_python(arguments, fallback=repr, bytes_mode="base64")
        text = json.dumps(comparable, sort_keys=True)
    except (ValueError, TypeError):
        text = result_text(arguments)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
