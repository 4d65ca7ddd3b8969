"""Rows to trees, totals and differences of trees: pure functions."""
