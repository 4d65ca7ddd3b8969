"""The stores: where records and spans are kept, or where they are sent.

Each is an implementation of `tracer.store`. They need different packages, so each is a module of
its own. `postgres` is the store of servers.

Public modules:

- `http`: a writer that sends to a server
- `memory`: a recording in memory, for tests
- `embedded`: a Postgres for one machine, installed from a wheel
- `write_redaction`: how a subject is stored
"""
