"""What a load needs: a sum of prices that were measured, to be checked with a pencil.

What a span or an event costs was measured for some sizes; in between it goes straight from one to
the next. Everything else is multiplication; `docs/guides/scale.md` has the formula.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Literal

from benchmarks.figures import Figure

Way = Literal["span", "event"]
"""As what it comes in."""

WAYS: tuple[Way, ...] = ("span", "event")

BUSY = 0.6
"""How busy a core may be at the peak: more, and waiting grows faster than work."""

ROOM = 1.3
"""What tables and indexes take beyond their rows: dead rows, half-filled pages, room to vacuum."""

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Price:
    """What something costs: processor time, log, disk."""

    server_us: float = 0.0
    """Microseconds that the server and its projectors work."""
    postgres_us: float = 0.0
    """Microseconds that Postgres works."""
    log: float = 0.0
    """Bytes of write-ahead log."""
    tables: float = 0.0
    """Bytes of tables, what is stored outside of rows included."""
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
"""The sizes that prices are known of."""


@dataclass(frozen=True)
class Prices:
    """What one way in costs."""

    known: tuple[tuple[float, Price], ...]
    """How many kB a span or an event has as it is sent, and what it costs then; ascending."""
    items_a_call: float
    """How many spans or events there are for each tool call."""

    @property
    def usual_kilobytes(self) -> float:
        """How large one is in the benchmark's load."""
        return self.known[0][0]

    def of(self, kilobytes: float) -> Price:
        """Return what one of a size costs; smaller ones than were measured cost as much."""
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
    """What is asked of an installation."""

    agents: int
    calls_a_day: float
    """Tool calls of one agent."""
    keep_days: float
    kilobytes: float
    """The size of a span or an event, as it is sent."""
    peak: float = 4.0
    """How much more comes at the busiest time than on average."""
    sampled: float = 1.0
    """The part of the runs that is recorded at all."""


@dataclass(frozen=True)
class Needs:
    """What it takes."""

    items_a_second: float
    """Spans or events at the peak."""
    server_cores: float
    """For servers and projectors at the peak. Each process uses at most one core."""
    postgres_cores: float
    disk_gb: float
    """For tables and indexes."""
    index_gb: float
    """For indexes alone: what does not fit into memory is read from disk at each insert."""
    log_gb_a_day: float
    """What a backup's archive takes in, and what a standby is sent."""
    log_mb_a_second: float
    """At the peak."""


def needs_of(prices: Prices, demand: Demand) -> Needs:
    """Return what a demand needs."""
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
