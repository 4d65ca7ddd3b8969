"""OTLP: bytes to spans and back, and the blocks in which spans are stored."""
