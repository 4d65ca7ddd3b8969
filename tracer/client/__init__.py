"""Record by hand: the connection to a store, and the blocks that record work."""
