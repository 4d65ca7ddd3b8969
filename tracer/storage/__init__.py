"""The stores: Postgres, a tracer server over HTTP, and a recording in memory."""
