"""The cost of a span and an event, and a test of the model on a load that was not measured.

Prices come from three sizes of spans and of events. Then another mix is sent: other traces of a
size in between, some as spans and some as events. The measured cost is compared with the sum of
the prices.

`python -m benchmarks.capacity dist/bench-….json --agents 1000 --calls-a-day 2000 --keep-days 30`
computes the needs of a load by the prices in a file of results.
"""

from __future__ import annotations

import random  # noqa: TID251 -- seeded: the same traces each time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Annotated

import psycopg
import typer
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.capacity_model import (
    SAID,
    SIZES,
    UNITS,
    WAYS,
    Demand,
    Needs,
    Price,
    Prices,
    Way,
    figures_of,
    needs_of,
    prices_from,
)
from benchmarks.figures import Figure, at_most, read_results, shown
from benchmarks.http_load import load_process
from benchmarks.ingest import Encode, Ingest, Load, Rates, event_requests, load_of, otlp_requests
from benchmarks.other_forms import exporters
from benchmarks.surroundings import Bench
from benchmarks.workload import words

ROUNDS = 3
"""Each round has all loads, so that other work of the machine affects them alike."""

TRACE_SPANS = 1_000
OTHER = "other"
LOADS = {
    "usual": (TRACE_SPANS, 0),
    "larger": (TRACE_SPANS, 250),
    "largest": (TRACE_SPANS, 1_000),
    OTHER: (600, 500),
}
"""How many spans a trace has, and how many words longer its tools' results are.

Postgres compresses rows beyond 2 kB and stores part of them elsewhere, so two sizes are too few."""

SEED = 60
WIDTH = 130

ENCODE: dict[Way, Encode] = {"span": otlp_requests, "event": event_requests}

# Checkpoints and vacuum run only on request: otherwise they would add to the log at random.
_ON_DEMAND = {"max_wal_size": "32GB", "checkpoint_timeout": "1h", "autovacuum": "off"}

_SIZES = """
SELECT relname::text, pg_table_size(oid), pg_indexes_size(oid)
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"""

_VACUUM = "VACUUM (INDEX_CLEANUP ON)"

_LOG = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"


@dataclass(frozen=True)
class Took:
    """The cost of each item of a load."""

    price: Price
    kilobytes: float
    items_a_call: float
    by_table: dict[str, float]
    """Bytes of tables with their indexes."""


class Measuring:
    """Sends loads to a server and measures their costs."""

    def __init__(self, ingest: Ingest, url: str) -> None:
        self._ingest = ingest
        self._url = url

    def take(self, load: Load, before: Load) -> Took:
        """Send a load, and return its cost.

        Args:
            load: The load.
            before: Another load of the same kind that is sent first. Its updates and deletions
                leave space that fits the rows that follow.
        """
        self._ingest.take(before, Rates())
        rates = Rates()
        with psycopg.connect(self._url, autocommit=True) as connection:
            # Its log and its work are those of the load alone; the first change of each page is
            # logged in full, as after every checkpoint.
            connection.execute(_VACUUM)
            connection.execute("CHECKPOINT")
            tables, indexes, logged = self._disk()
            self._ingest.take(load, rates)
            # A large table is vacuumed long after its rows came, so its pages are logged in full.
            connection.execute("CHECKPOINT")
            connection.execute(_VACUUM)
        tables_after, indexes_after, logged_after = self._disk()
        tables_after.subtract(tables)
        indexes_after.subtract(indexes)
        price = Price(
            rates.server[0],
            rates.postgres[0],
            (logged_after - logged) / load.count,
            tables_after.total() / load.count,
            indexes_after.total() / load.count,
        )
        by_table = {
            name: (size + indexes_after[name]) / load.count
            for name, size in tables_after.items()
            if size
        }
        return Took(price, kilobytes_of(load), load.count / load.tool_calls, by_table)

    def _disk(self) -> tuple[Counter[str], Counter[str], float]:
        with psycopg.connect(self._url) as connection:
            sizes = connection.execute(_SIZES).fetchall()
            [logged] = connection.execute(_LOG).fetchone() or [0.0]
        tables = Counter({name: size for name, size, _ in sizes})
        return tables, Counter({name: size for name, _, size in sizes}), logged


@contextmanager
def nothing_by_chance(url: str) -> Iterator[None]:
    """Stop Postgres's automatic checkpoints and vacuum while inside."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name, value in _ON_DEMAND.items():
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        connection.execute("SELECT pg_reload_conf()")
        yield
        for name in _ON_DEMAND:
            connection.execute(f"ALTER SYSTEM RESET {name}".encode())
        connection.execute("SELECT pg_reload_conf()")


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure prices, and how far the other load deviates from them."""
    took: dict[tuple[Way, str], list[Took]] = defaultdict(list)
    seeds = count(bench.seed + SEED)  # no trace is sent twice
    with (
        bench.database() as url,
        nothing_by_chance(url),
        bench.server(url) as server,
        load_process() as sender,
    ):
        ingest = Ingest(bench, sender, url, server)
        measuring = Measuring(ingest, url)
        for number in range(rounds := bench.sized(ROUNDS, 1)):
            bench.say(f"round {number + 1} of {rounds}")
            for way in WAYS:
                for name, (size, more_words) in LOADS.items():
                    spans = bench.sized(6_000, 2_000)
                    sent, before = (
                        load(way, seed, size, spans, more_words) for seed in islice(seeds, 2)
                    )
                    took[way, name].append(measuring.take(sent, before))
    foretold, actual = Price(), Price()
    for way in WAYS:
        known = tuple((took[way, size][0].kilobytes, _median(took[way, size])) for size in SIZES)
        usual = took[way, SIZES[0]][-1]
        prices = Prices(known, usual.items_a_call)
        yield from figures_of(way, prices)
        for table, taken in sorted(usual.by_table.items(), key=lambda each: -each[1]):
            yield Figure(name=f"{way}, usual: {table}, with indexes", value=taken, unit="B")
        actual += _median(took[way, OTHER])
        foretold += prices.of(took[way, OTHER][0].kilobytes)
    for field, expected, real in zip(
        fields(Price), astuple(foretold), astuple(actual), strict=True
    ):
        yield Figure(
            name=f"another load: {SAID[field.name]}, off by",
            value=100 * abs(expected - real) / real,
            unit="%",
            yardstick="measured",
            ratio=expected / real,
            goal=at_most(20, "value"),
        )


def _median(took: list[Took]) -> Price:
    columns = zip(*(astuple(each.price) for each in took), strict=True)
    return Price(*map(median, columns))


def load(way: Way, seed: int, size: int, spans: int, more_words: int) -> Load:
    """Return so many spans in traces of one size, or the events of their runs."""
    return load_of(lengthened(exporters(seed, size, spans), more_words, seed), ENCODE[way])


def lengthened(programs: list[list[Span]], more_words: int, seed: int) -> list[list[Span]]:
    """Return programs' spans whose tools return so many words more."""
    if not more_words:
        return programs
    chosen = random.Random(seed)
    longer = []
    for spans in programs:
        longer.append([Span.FromString(span.SerializeToString()) for span in spans])
        for span in longer[-1]:
            for attribute in span.attributes:
                if attribute.key == "gen_ai.tool.call.result":
                    text = f'{{"note":"{words(chosen, more_words)}"}}'
                    attribute.value.string_value = text
    return longer


def kilobytes_of(load: Load) -> float:
    """Return the size of a span or an event of a load in a request."""
    requests = [request for sequence in load.sequences for request in sequence]
    return sum(map(len, requests)) / load.count / 1e3


def prices_table(prices: dict[Way, Prices]) -> Table:
    """Return what one costs, as it is printed."""
    table = Table("", "sent", *SAID.values(), box=MARKDOWN)
    for way, known in prices.items():
        for size, (kilobytes, price) in zip(SIZES, known.known, strict=True):
            costs = zip(astuple(price), UNITS.values(), strict=True)
            cells = [f"{shown(cost)} {unit}" for cost, unit in costs]
            table.add_row(f"{way}, {size}", f"{shown(kilobytes)} kB", *cells)
    return table


def needs_table(needs: dict[Way, Needs]) -> Table:
    """Return what a demand needs, by way in, as it is printed."""
    table = Table("", *(f"as {way}s" for way in needs), box=MARKDOWN)
    for field in fields(Needs):
        values = [getattr(each, field.name) for each in needs.values()]
        table.add_row(field.name.replace("_", " "), *map(shown, values))
    return table


def main(
    results: Annotated[Path, typer.Argument(help="The file of `make bench ONLY=capacity`.")],
    agents: Annotated[int, typer.Option(min=1)] = 100,
    calls_a_day: Annotated[float, typer.Option(help="Tool calls of one agent.")] = 1_000,
    keep_days: Annotated[float, typer.Option(help="How long they are kept.")] = 30,
    kilobytes: Annotated[
        float | None, typer.Option(help="The size of a span or an event; else the benchmark's.")
    ] = None,
    peak: Annotated[float, typer.Option(help="The busiest time over the average.")] = 4,
    sampled: Annotated[float, typer.Option(help="The part of runs that is recorded.")] = 1,
) -> None:
    """Print prices, and the needs of a load, as tables for a page."""
    figures = {figure.name: figure for figure in read_results(results).figures["capacity"]}
    prices: dict[Way, Prices] = {way: prices_from(figures, way) for way in WAYS}
    needs: dict[Way, Needs] = {}
    for way, known in prices.items():
        size = known.usual_kilobytes if kilobytes is None else kilobytes
        demand = Demand(agents, calls_a_day, keep_days, size, peak, sampled)
        needs[way] = needs_of(known, demand)
    console = Console(highlight=False, width=WIDTH)
    console.print(prices_table(prices))
    console.print(f"{agents:,} agents × {calls_a_day:,.0f} calls a day, kept {keep_days:g} days:")
    console.print(needs_table(needs))


if __name__ == "__main__":
    typer.run(main)
