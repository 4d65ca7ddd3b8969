"""The stores: Postgres, memory, and a tracer server over HTTP."""
