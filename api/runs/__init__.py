"""Lists of runs, their cancellation and export."""
