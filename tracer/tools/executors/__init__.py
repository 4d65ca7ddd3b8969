"""The kinds of tool that need more than a function: what carries out a call of each."""
