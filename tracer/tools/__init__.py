"""Tools: functions and services that a model may call."""
