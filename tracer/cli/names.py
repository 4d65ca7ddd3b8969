"""The names of commands with their help, so that `tracer --help` need not import the commands."""

SERVER_COMMANDS = {
    "prune": "Delete the runs that exceed their project's limits of age and number.",
    "erase": "Delete one run, or all runs of a user, with all data.",
    "reproject": "Compute the records of runs from their spans again, with this version of Tracer.",
    "projector": "Turn accepted spans into records, without a server, until it is stopped.",
    "psql": "Open psql with read access to one project.",
    "sql": "Print what a query of one project's records returns. Views need no schema.",
    "serve": "Serve the API and the viewer.",
    "demo": "Record runs of the demonstration, and show them in the viewer.",
    "migrate": "Bring the database's schema up to date.",
}
SERVER_GROUPS = {
    "keys": "Create, list and revoke API keys.",
    "analysts": "Let database roles read a project by SQL, and nothing else.",
    "search": "Manage the search index.",
    "prices": "Set, list and delete a project's own prices.",
    "projects": "Show and change how long projects store runs.",
}
COMMANDS = {
    "export": "Export runs of the server at TRACER_URL. `tracer import` reads the files.",
    "import": (
        "Send files of events or OTLP to the server at TRACER_URL. Files may be compressed with "
        "gzip."
    ),
    "list": "List runs: a line each with question, answer, or where its failure began.",
    "show": "Outline a run, or what is below one record, folded to a budget of tokens.",
    "why": "Explain why a run failed, hangs, was abandoned or was slow.",
    "record": "Print one record whole, or a slice of one of its payloads.",
    "diff": "Compare two runs. Exit with 3 if they differ.",
    "stats": "Print calls and failures by tool, or spend by model, agent, user or day.",
    "tail": "Print starts, ends and failures in runs as they happen, until the runs have ended.",
    "mcp": "Serve the questions as MCP tools over stdio, from the server at TRACER_URL.",
    "check": "Compare a run with a trajectory file, or with another run.",
    "setup": "Let a coding agent read runs: add the MCP server at TRACER_URL to its settings.",
    "run": "Run a request with the application's agents, and print its outcome.",
    "doctor": (
        "Find out why a run does not appear: check the server, keys, ports, clocks and programs."
    ),
    "spool": "List, send or delete events that wait on this machine.",
}
"""Commands that need no server."""

EXTRAS = dict.fromkeys(COMMANDS, "cli") | {
    "run": "cli,runtime",
    "mcp": "cli,mcp",
    "check": "cli,testing",
}
"""The extras that these commands need. All others need `server`."""
