"""The names of commands, and their help: `tracer --help` lists them without loading them."""

SERVER_COMMANDS = {
    "export": "Export a complete run. `tracer import` restores it.",
    "import": "Import runs from files of JSON lines or OTLP, compressed with gzip or not.",
    "prune": "Delete the runs that exceed their project's limits. Servers do so by themselves.",
    "erase": (
        "Delete a run, or all runs of a subject, with all their data. Print how many rows remain."
    ),
    "pack-spans": (
        "Move spans of earlier versions into compressed blocks. Servers do so by themselves."
    ),
    "reproject": "Project the records of runs from their spans again, with this version.",
    "psql": "Open psql as an analyst of a project.",
    "serve": "Serve the API and the viewer.",
    "demo": "Record a run of the demonstration application, and show it in the viewer.",
    "migrate": "Bring the database's schema up to date.",
}
SERVER_GROUPS = {
    "keys": "Create, list and revoke API keys.",
    "analysts": "Let database roles read a project by SQL, and nothing else.",
    "prices": "Set, list and delete a project's own prices.",
    "projects": "Show and change how long projects store runs.",
}
COMMANDS = {
    "run": "Run a request with the application's agents, and print its outcome.",
    "spool": "List, send or delete events that wait on this machine.",
}
"""Commands that need no server."""
