"""The recorder: makes events durable before the agent continues, even if the store fails."""
