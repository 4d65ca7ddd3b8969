"""Other agent frameworks: their tools as ours, and ours as theirs."""
