"""The memory store: a plain implementation of the contract."""
