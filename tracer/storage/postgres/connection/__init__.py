"""Connections, row-level security, Citus, and the errors of Postgres."""
