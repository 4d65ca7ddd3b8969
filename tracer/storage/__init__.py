"""Where records are kept: Postgres, memory, and the way over HTTP."""
