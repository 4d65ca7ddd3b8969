"""Events as they happen: durable before the agent goes on, whatever the store does."""
