"""Record by hand: a connection to a store, and `with` blocks that record what an agent does."""
