"""OpenTelemetry: decode, store and encode spans, and convert between spans and records.

All functions are pure. They do no I/O.
"""
