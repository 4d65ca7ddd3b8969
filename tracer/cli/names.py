"""The names of commands, and their help: `tracer --help` lists them without loading them."""

SERVER_COMMANDS = {
    "export": "Write a complete run to a file. `tracer import` reads it.",
    "import": "Read runs from files of JSON lines or OTLP, optionally compressed with gzip.",
    "prune": "Delete the runs that projects do not keep any longer. Servers do so by themselves.",
    "erase": "Delete a run or all runs of a subject, then count the records that remain.",
    "pack-spans": (
        "Move spans that earlier versions stored into compressed blocks. Servers do so, too."
    ),
    "reproject": "Compute the records of runs from their spans again, with the current version.",
    "psql": "Open psql as an analyst of a project.",
    "serve": "Serve the API and the viewer.",
    "demo": "Record a run of the demonstration application, and show it in the viewer.",
    "migrate": "Bring the database's schema up to date.",
}
SERVER_GROUPS = {
    "keys": "Create, list and revoke API keys.",
    "analysts": "Let database roles read a project by SQL, and nothing else.",
    "projects": "Set what projects keep, and for how long.",
}
COMMANDS = {
    "run": "Run a request with the application's agents, and print its outcome.",
    "spool": "List, send or delete events that wait on this machine.",
}
"""Commands that need no server."""
