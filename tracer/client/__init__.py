"""Recording by hand: a connection to a store, and what was started and will end."""
