"""The needs of a load: a sum of measured prices that can be checked with a pencil.

The cost of a span or an event was measured at some sizes and is interpolated linearly in between.
Everything else is multiplication; `docs/guides/scale.md` has the formula.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Literal

from benchmarks.figures import Figure

Way = Literal["span", "event"]
"""The form in which data is sent."""

WAYS: tuple[Way, ...] = ("span", "event")

BUSY = 0.6
"""The highest load of a core at the peak: above it, waiting grows faster than work."""

ROOM = 1.3
"""The space of tables and indexes beyond their rows: dead rows, half-filled pages, and vacuum."""

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Price:
    """The cost of an item: processor time, log, disk."""

    server_us: float = 0.0
    """Microseconds that the server and its projectors work."""
    postgres_us: float = 0.0
    """Microseconds that Postgres works."""
    log: float = 0.0
    """Bytes of write-ahead log."""
    tables: float = 0.0
    """Bytes of tables, including values that are stored outside of rows."""
    indexes: float = 0.0

    def __add__(self, other: Price) -> Price:
        return self._with(other, lambda one, more: one + more)

    def __sub__(self, other: Price) -> Price:
        return self._with(other, lambda one, less: one - less)

    def __mul__(self, times: float) -> Price:
        return Price(*(each * times for each in astuple(self)))

    def _with(self, other: Price, join: Callable[[float, float], float]) -> Price:
        return Price(*map(join, astuple(self), astuple(other)))


UNITS = {"server_us": "µs", "postgres_us": "µs", "log": "B", "tables": "B", "indexes": "B"}
SAID = {
    "server_us": "server and projectors work",
    "postgres_us": "Postgres works",
    "log": "log",
    "tables": "tables",
    "indexes": "indexes",
}


SIZES = ("usual", "larger", "largest")
"""The sizes with known prices."""


@dataclass(frozen=True)
class Prices:
    """The prices of one form."""

    known: tuple[tuple[float, Price], ...]
    """The sizes of a span or an event in kB as sent, with their prices; ascending."""
    items_a_call: float
    """How many spans or events there are for each tool call."""

    @property
    def usual_kilobytes(self) -> float:
        """How large one is in the benchmark's load."""
        return self.known[0][0]

    def of(self, kilobytes: float) -> Price:
        """Return the price of a size. Below the smallest measured size it is constant."""
        kilobytes = max(kilobytes, self.usual_kilobytes)
        sizes = [size for size, _ in self.known[1:-1]]
        place = bisect(sizes, kilobytes)
        (small, price), (large, dearer) = self.known[place : place + 2]
        return price + (dearer - price) * ((kilobytes - small) / (large - small))


def figures_of(way: Way, prices: Prices) -> list[Figure]:
    """Return prices as figures of a benchmark; `prices_from` reads them."""
    figures = [Figure(name=f"{way}: for a tool call", value=prices.items_a_call, unit="×")]
    for size, (kilobytes, price) in zip(SIZES, prices.known, strict=True):
        figures.append(Figure(name=f"{way}, {size}: sent", value=kilobytes, unit="kB"))
        figures += [
            Figure(name=_name(way, size, field), value=getattr(price, field), unit=unit)
            for field, unit in UNITS.items()
        ]
    return figures


def prices_from(figures: Mapping[str, Figure], way: Way) -> Prices:
    """Return the prices of a way in from a benchmark's figures by name.

    Raises:
        KeyError: The figures have none.
    """
    known = [
        (
            figures[f"{way}, {size}: sent"].value,
            Price(*(figures[_name(way, size, field)].value for field in UNITS)),
        )
        for size in SIZES
    ]
    return Prices(tuple(known), figures[f"{way}: for a tool call"].value)


def _name(way: Way, size: str, field: str) -> str:
    return f"{way}, {size}: {SAID[field]}"


@dataclass(frozen=True)
class Demand:
    """The load of an installation."""

    agents: int
    calls_a_day: float
    """Tool calls of one agent."""
    keep_days: float
    kilobytes: float
    """The size of a span or an event, as it is sent."""
    peak: float = 4.0
    """The ratio of the busiest time to the average."""
    sampled: float = 1.0
    """The share of runs that is recorded."""


@dataclass(frozen=True)
class Needs:
    """The resources that a load needs."""

    items_a_second: float
    """Spans or events at the peak."""
    server_cores: float
    """For servers and projectors at the peak. Each process uses at most one core."""
    postgres_cores: float
    disk_gb: float
    """For tables and indexes."""
    index_gb: float
    """For indexes alone. Parts that do not fit into memory are read from disk at each insert."""
    log_gb_a_day: float
    """The data that is sent to a backup's archive, and to a standby."""
    log_mb_a_second: float
    """At the peak."""


def needs_of(prices: Prices, demand: Demand) -> Needs:
    """Return the needs of a load."""
    calls_a_day = demand.agents * demand.calls_a_day * demand.sampled
    items_a_day = calls_a_day * prices.items_a_call
    price = prices.of(demand.kilobytes)
    at_peak = items_a_day / DAY_SECONDS * demand.peak
    return Needs(
        items_a_second=at_peak,
        server_cores=at_peak * price.server_us / 1e6 / BUSY,
        postgres_cores=at_peak * price.postgres_us / 1e6 / BUSY,
        disk_gb=items_a_day * demand.keep_days * (price.tables + price.indexes) * ROOM / 1e9,
        index_gb=items_a_day * demand.keep_days * price.indexes * ROOM / 1e9,
        log_gb_a_day=items_a_day * price.log / 1e9,
        log_mb_a_second=at_peak * price.log / 1e6,
    )
