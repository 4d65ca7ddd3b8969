"""Conventions that differ from the GenAI conventions only in names, each as one table."""

from __future__ import annotations

from tracer.otel.dialects.dialect import Dialect

LIVEKIT = Dialect(
    "LiveKit Agents",
    order=31,
    scopes=("livekit-agents", "livekit.agents"),
    operations={
        "agent_session": "invoke_workflow",
        "llm_node": "chat",  # one call with `llm_request` below it
        "llm_request": "chat",
        "function_tool": "execute_tool",
    },
    names={
        "gen_ai.agent.name": ("lk.agent_name", "lk.agent_label"),
        "gen_ai.conversation.id": ("session.id", "lk.room_name", "lk.job_id"),
        "gen_ai.input.messages": ("lk.chat_ctx", "lk.pii.chat_ctx"),
        "gen_ai.response.text": ("lk.response.text", "lk.pii.response.text"),
        "gen_ai.response.tool_calls": (
            "lk.response.function_calls",
            "lk.pii.response.function_calls",
        ),
        "gen_ai.tool.name": ("lk.function_tool.name",),
        "gen_ai.tool.call.id": ("lk.function_tool.id",),
        "gen_ai.tool.call.arguments": (
            "lk.function_tool.arguments",
            "lk.pii.function_tool.arguments",
        ),
        "gen_ai.tool.call.result": ("lk.function_tool.output", "lk.pii.function_tool.output"),
        "gen_ai.tool.is_error": ("lk.function_tool.is_error",),
    },
)

SPRING_AI = Dialect(
    "Spring AI",
    order=32,
    marks=("spring.ai.kind",),
    kind="spring.ai.kind",
    operations={
        "chat_client": "invoke_workflow",
        "tool_call": "execute_tool",
        "vector_store": "retrieval",
    },
    names={
        "gen_ai.conversation.id": ("spring.ai.chat.client.conversation.id",),
        "gen_ai.tool.name": ("spring.ai.tool.definition.name",),
        "gen_ai.tool.call.arguments": ("spring.ai.tool.call.arguments",),
        "gen_ai.tool.call.result": ("spring.ai.tool.call.result",),
        "gen_ai.retrieval.query.text": ("db.vector.query.content",),
    },
)

QUARKUS = Dialect(
    "Quarkus LangChain4j",
    order=33,
    scopes=("io.quarkus.opentelemetry",),
    operations={
        "langchain4j.tools.*": "execute_tool",
        "langchain4j.aiservices.*": "invoke_workflow",
    },
)

TABLES = (LIVEKIT, SPRING_AI, QUARKUS)
"""All dialects of this module."""
