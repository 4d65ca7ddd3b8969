"""The capacity model computes the resources for a load from measured costs (prices) per span."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.capacity import main
from benchmarks.capacity_model import (
    BUSY,
    ROOM,
    WAYS,
    Demand,
    Price,
    Prices,
    Way,
    figures_of,
    needs_of,
    prices_from,
)
from benchmarks.figures import Results

USUAL = Price(110, 70, 2_500, 1_200, 200)
LARGER = Price(130, 110, 3_500, 2_000, 200)
LARGEST = Price(140, 210, 3_500, 3_000, 200)
PRICES = Prices(((1.0, USUAL), (3.0, LARGER), (8.0, LARGEST)), 2.0)


def test_span_price_is_interpolated_or_extrapolated_from_measured_sizes() -> None:
    assert [PRICES.of(size) for size in (1, 3, 8)] == [USUAL, LARGER, LARGEST]
    assert PRICES.of(2) == Price(120, 90, 3_000, 1_600, 200)
    assert PRICES.of(13).postgres_us == pytest.approx(310)
    assert PRICES.of(0.5) == USUAL


def test_capacity_of_a_demand_is_computed_from_its_spans() -> None:
    a_day = 1_000 * 432.0 * 2  # ten spans a second
    needs = needs_of(PRICES, Demand(1_000, 432, 30, kilobytes=2, peak=4))

    assert needs.items_a_second == pytest.approx(40)
    assert needs.server_cores == pytest.approx(40 * 120e-6 / BUSY)
    assert needs.postgres_cores == pytest.approx(40 * 90e-6 / BUSY)
    assert needs.disk_gb == pytest.approx(a_day * 30 * 1_800 * ROOM / 1e9)
    assert needs.log_gb_a_day == pytest.approx(a_day * 3_000 / 1e9)


def test_sampling_half_of_the_runs_halves_the_needed_capacity() -> None:
    all_of_them = needs_of(PRICES, Demand(1_000, 1e5, 30, kilobytes=1))
    half = needs_of(PRICES, Demand(1_000, 1e5, 30, kilobytes=1, sampled=0.5))

    assert half.disk_gb == pytest.approx(all_of_them.disk_gb / 2)
    assert half.server_cores == pytest.approx(all_of_them.server_cores / 2)


def test_capacity_command_reads_prices_from_a_results_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [figure for way in WAYS for figure in figures_of(way, PRICES)]
    by_name = {figure.name: figure for figure in figures}
    ways: tuple[Way, ...] = WAYS
    assert [prices_from(by_name, way) for way in ways] == [PRICES, PRICES]

    path = tmp_path / "bench.json"
    Results(
        date=datetime(2026, 1, 1, tzinfo=UTC),
        seed=1,
        is_quick=True,
        machine={},
        versions={},
        figures={"capacity": figures},
        failures={},
        seconds={},
    ).save(path)
    main(path, agents=1_000)

    printed = capsys.readouterr().out
    assert "1,000 agents" in printed
    assert "disk gb" in printed
