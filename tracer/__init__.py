"""Records what an LLM agent did, and which tool call opened which sub-plan."""
