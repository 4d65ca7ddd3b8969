"""The definition of a tool: parameters, hidden parameters, hooks, session state, results."""
