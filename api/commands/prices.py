"""The `tracer prices` commands, which connect to the database directly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import Annotated

import orjson
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Column, Table

from api.commands import database as db
from api.routes.prices import PriceSchema
from tracer.cli.terminal import AsJson, Project, console, run_command
from tracer.errors import BadRequest
from tracer.records import DEFAULT_PROJECT
from tracer.records.events import validation_message
from tracer.records.prices import ALWAYS, RATES
from tracer.settings import Settings
from tracer.storage.postgres.projects import ModelPrices

prices = typer.Typer(
    name="prices", help="Set, list and delete a project's own prices.", no_args_is_help=True
)

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="The model's name, or its beginning followed by `*`."),
]
Provider = Annotated[
    str | None, typer.Option(help="The model's provider; every provider if omitted.")
]
ValidFrom = Annotated[
    datetime | None,
    typer.Option(
        "--from",
        metavar="DATE",
        formats=["%Y-%m-%d"],
        help="The first day of the price, in UTC; it always held if omitted.",
    ),
]


@prices.command(name="list")
def list_prices(project: Project = DEFAULT_PROJECT, as_json: AsJson = False) -> None:
    """List the prices of a project, in US dollars for a million tokens."""

    async def run(settings: Settings) -> None:
        async with _prices(settings, project) as own:
            listed = await own.list_prices()
        if as_json:
            shown = [PriceSchema.model_validate(each) for each in listed]
            typer.echo(orjson.dumps([each.model_dump(by_alias=True) for each in shown]).decode())
            return
        headings = ("model", "provider", "from", "input", "output", "read", "write", "reasoning")
        table = Table(*(Column(each, no_wrap=True) for each in headings), box=None)
        for each in listed:
            since = "" if each.valid_from == ALWAYS else str(each.valid_from)
            rates = (getattr(each, name) for name in RATES)
            amounts = ("" if rate is None else f"{rate:f}" for rate in rates)
            table.add_row(each.model, each.provider or "", since, *amounts)
        Console(markup=False, width=400).print(table)

    run_command(run)


@prices.command(name="set")
def set_price(
    model: Model,
    input_usd: Annotated[str, typer.Option("--input", metavar="USD", help="Input tokens.")],
    output_usd: Annotated[str, typer.Option("--output", metavar="USD", help="Output tokens.")],
    cache_read_usd: Annotated[
        str | None,
        typer.Option("--cache-read", metavar="USD", help="Input tokens read from a cache."),
    ] = None,
    cache_write_usd: Annotated[
        str | None,
        typer.Option("--cache-write", metavar="USD", help="Input tokens written to a cache."),
    ] = None,
    reasoning_usd: Annotated[
        str | None, typer.Option("--reasoning", metavar="USD", help="Tokens of reasoning.")
    ] = None,
    provider: Provider = None,
    valid_from: ValidFrom = None,
    project: Project = DEFAULT_PROJECT,
) -> None:
    """Set what a million tokens of a model cost, in US dollars.

    The new price replaces an existing price of the same model, provider and first day. If no price
    for cached tokens is given, they cost as much as input tokens. If no price for reasoning tokens
    is given, they cost as much as output tokens.
    """

    async def run(settings: Settings) -> None:
        try:
            wanted = PriceSchema.model_validate(
                {
                    "model": model,
                    "provider": provider,
                    "valid_from": _day(valid_from),
                    "input_usd": input_usd,
                    "output_usd": output_usd,
                    "cache_read_usd": cache_read_usd,
                    "cache_write_usd": cache_write_usd,
                    "reasoning_usd": reasoning_usd,
                }
            )
        except ValidationError as error:
            raise BadRequest(validation_message(error)) from None
        async with _prices(settings, project) as own:
            await own.set_price(wanted.price())
        console.print(
            "The price is set. Apply it to stored runs: `tracer reproject --all --prices`."
        )

    run_command(run)


@prices.command()
def delete(
    model: Model,
    provider: Provider = None,
    valid_from: ValidFrom = None,
    project: Project = DEFAULT_PROJECT,
) -> None:
    """Delete a price. Costs that are already stored do not change."""

    async def run(settings: Settings) -> None:
        async with _prices(settings, project) as own:
            if not await own.delete(model, provider, _day(valid_from)):
                raise BadRequest(
                    "The project has no such price. List its prices: `tracer prices list`."
                )
        console.print("The price is deleted.")

    run_command(run)


@asynccontextmanager
async def _prices(settings: Settings, project: str) -> AsyncIterator[ModelPrices]:
    async with (
        db.database(settings) as url,
        db.project_pool(url, project) as pool,
    ):
        yield ModelPrices(pool)


def _day(valid_from: datetime | None) -> date:
    return ALWAYS if valid_from is None else valid_from.replace(tzinfo=UTC).date()
