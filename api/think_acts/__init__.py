"""The route that reads a think-act: one model call and the tool calls that it requested."""
