"""What a tool is: parameters, hidden parameters, hooks, session state, results."""
