"""Many hostile request bodies neither crash the server nor stay in its memory."""

from __future__ import annotations

import gc
import random
from collections import Counter

import httpx2
import psutil

from benchmarks.workload import request, trace
from tests.contract.stores import NewStore, postgres_stores, serving
from tests.otel.captured import NAMES, bodies, spans_of
from tests.otel.decoded import spans_in
from tests.otel.sent import encode_json
from tests.sample_runs import sample_run
from tests.torture import lengths
from tests.torture.mutations import EVENTS, JSON, NDJSON, PROTOBUF, TRACES, Seed, mutated
from tracer.otel.otlp import decode_protobuf
from tracer.records.events import event_json
from tracer.storage.postgres import open_pool

BODIES = lengths.EVENTS if lengths.IS_LONG else 500
CHUNK = 1_000
"""After how many requests the next store is used."""

HARMLESS = {200, 400, 413, 415}
READ = 20
"""How many of the runs that a chunk left are read."""

MOST_GROWTH = 40 * 2**20
"""How much more memory a process may have after the last chunk than after the first ones."""


def seeds() -> list[Seed]:
    """Return good bodies of every form."""
    events = [[event_json(event) for event in sample_run(number).events] for number in (0, 1, 4)]
    spans = [spans_of(name)[:5] for name in NAMES]
    spans.append(spans_in(decode_protobuf(request(trace(1, 12)).SerializeToString())))
    return [
        *(Seed(EVENTS, NDJSON, b"\n".join(lines)) for lines in events),
        *(Seed(EVENTS, JSON, b'{"events": [' + b",".join(lines) + b"]}") for lines in events),
        *(Seed(TRACES, PROTOBUF, body) for name in NAMES for body in bodies(name)),
        *(Seed(TRACES, JSON, encode_json(each)) for each in spans),
    ]


async def tortured(new_store: NewStore, count: int, seed: int) -> Counter[int]:
    """Send so many bodies to a server with an empty store, and return how often it said what."""
    chance = random.Random(seed)
    good = seeds()
    # Each form alike, however many seeds it has.
    forms = sorted({(each.path, each.media_type) for each in good})
    statuses: Counter[int] = Counter()
    transport = serving(new_store())
    async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
        for number in range(count):
            form = chance.choice(forms)
            chosen = chance.choice([each for each in good if (each.path, each.media_type) == form])
            sent = mutated(chosen, chance)
            response = await client.post(sent.path, content=sent.body, headers=sent.headers)
            statuses[response.status_code] += 1
            assert response.status_code in HARMLESS, (seed, number, response.text)
        page = (await client.get("/api/runs", params={"limit": 500})).json()
        for run in chance.sample(page["items"], min(READ, len(page["items"]))):
            tree = await client.get(f"/api/plans/{run['rootPlanId']}/tree")
            assert tree.status_code in (200, 404), (seed, run, tree.text)
            statuses[tree.status_code] += 1
    return statuses


def memory() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


async def test_hostile_bodies_neither_crash_the_server_nor_stay_in_memory(
    database_url: str,
) -> None:
    statuses: Counter[int] = Counter()
    sizes: list[int] = []
    async with open_pool(database_url) as pool:
        for seed in range(-(-BODIES // CHUNK)):
            statuses += await tortured(postgres_stores(pool), min(CHUNK, BODIES), seed)
            sizes.append(memory())

    # What a process needs for the first time, it keeps.
    growth = sizes[-1] - sizes[len(sizes) // 4]
    lengths.say(
        "hostile bodies",
        bodies=BODIES,
        answers=dict(sorted(statuses.items())),
        server_errors=sum(count for status, count in statuses.items() if status >= 500),
        megabytes_at_first=sizes[0] // 2**20,
        megabytes_at_last=sizes[-1] // 2**20,
    )
    assert growth < MOST_GROWTH
