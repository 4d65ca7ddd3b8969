"""The calls of a refund, on two days."""

from datetime import date

import agent
import pytest

from tracer.testing import Recorded


@pytest.mark.parametrize("day", [date(2026, 11, 28), date(2027, 3, 1)])
def test_refund(recorded: Recorded, day: date) -> None:
    """The agent makes the calls of the file, whatever the day."""
    answer = agent.run("Refund INV-42", today=lambda: day)

    run = recorded.run()
    assert answer == "INV-42 is refunded."
    assert run.calls("find_invoice").single().arguments == {"invoice": "INV-42"}
    run.assert_matches("trajectories/refund.yaml")
