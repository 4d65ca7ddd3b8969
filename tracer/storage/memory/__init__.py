"""The memory store: the plain reading of the contract."""
