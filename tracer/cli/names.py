"""The names of commands, and their help: `tracer --help` lists them without loading them."""

SERVER_COMMANDS = {
    "export": "Write a run, whole: `tracer import` brings it back.",
    "import": "Read runs from files of JSON lines or OTLP, packed with gzip or not.",
    "prune": "Delete the runs that projects do not keep any longer. Servers do so by themselves.",
    "erase": "Delete a run, or all runs of a subject, with everything below; count what is left.",
    "pack-spans": (
        "Move spans that earlier versions stored into compressed blocks. Servers do so, too."
    ),
    "reproject": "Derive the records of runs from their spans again, as the current version does.",
    "psql": "Open psql as an analyst of a project.",
    "serve": "Serve the API and the viewer.",
    "demo": "Record a run of the demonstration application, and show it in the viewer.",
    "migrate": "Bring the database's schema up to date.",
}
SERVER_GROUPS = {
    "keys": "Make, list and revoke the keys that let in.",
    "analysts": "Let database roles read a project by SQL, and nothing else.",
    "projects": "Say what projects keep, and for how long.",
}
COMMANDS = {
    "run": "Run a request through the application's agents, and print its outcome.",
    "spool": "List, send or delete events that wait on this machine.",
}
"""Commands that need no server."""
