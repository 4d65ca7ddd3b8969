"""Runs are found by session, subject and tag."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.contract.moments import START, Moments
from tests.contract.stores import NewStore, Store
from tests.contract.test_lists import pages_of_runs, roots
from tracer.store import RunFilter
from tracer.text import escape

WARD = {"session": "ward-3", "subject": "p-7", "tag": "night"}
OF_WARD: dict[str, Any] = {"session_id": "ward-3", "subject": "p-7", "tags": ("night",)}


def wanted_by(name: str, value: str | None, **more: Any) -> RunFilter:
    return RunFilter(**{name: value, **more})


async def test_runs_are_found_by_session_subject_and_tag(store: Store) -> None:
    one, other, bare = Moments(), Moments(), Moments()
    await store.record(
        one.plan_started(session_id="ward-3", subject="p-7", tags=("night", "slow")),
        other.plan_started(session_id="ward-3", subject="p-8", tags=("night",)),
        bare.plan_started(),
    )
    both = [other.root, one.root]
    for wanted, expected in (
        (RunFilter(session="ward-3"), both),
        (RunFilter(subject="p-7"), [one.root]),
        (RunFilter(tag="night"), both),
        (RunFilter(tag="slow"), [one.root]),
        (RunFilter(session="ward-3", subject="p-8"), [other.root]),
        (RunFilter(session="ward-3", tag="slow"), [one.root]),
        (RunFilter(session="ward-3", status="running"), both),
        (RunFilter(session="ward-3", agent="nurse"), []),
        (RunFilter(session="ward"), []),
        (RunFilter(subject="P-7"), []),
        (RunFilter(tag="nigh"), []),
        *((wanted_by(name, ""), []) for name in WARD),
    ):
        assert await roots(store, wanted) == expected, wanted


async def test_run_is_found_by_any_text_as_session_subject_or_tag(store: Store) -> None:
    failures = []
    for value in ("", "\0", "\ud800", "␛0000", "'", "字" * 40_000):
        run, other = Moments(), Moments()
        for each, text in ((run, value), (other, f"{value}1")):
            await store.record(each.plan_started(session_id=text, subject=text, tags=(text,)))
        for name in WARD:
            found = await roots(store, wanted_by(name, escape(value)))
            if found != [run.root]:
                failures.append(f"{name} {value[:9]!r}: expected {[run.root]}, found {found}")
    assert failures == []


async def test_filter_with_an_unescaped_nul_finds_the_run(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(session_id="\0", subject="\0", tags=("\0",)))
    for name in WARD:
        assert await roots(store, wanted_by(name, "\0")) == [run.root]


async def test_run_is_found_by_the_mask_of_its_session_subject_or_tag(store: Store) -> None:
    run = Moments()
    secret = "ghp_" + "aB3dE5gH7jK9" * 3
    await store.record(run.plan_started(session_id=secret, subject=secret, tags=(secret,)))
    [kept] = (await store.reader.list_runs(RunFilter(), 1, None)).items
    assert kept.subject != secret
    masked = {"session": kept.session_id, "subject": kept.subject, "tag": kept.tags[0]}
    for name, value in masked.items():
        assert await roots(store, wanted_by(name, value)) == [run.root]
        assert await roots(store, wanted_by(name, secret)) == []


async def test_pages_of_runs_filtered_by_session_subject_or_tag_are_in_order(store: Store) -> None:
    days = (2, 0, 3, 1)
    runs = [Moments() for _ in days]
    for day, run in zip(days, runs, strict=True):
        await store.record(run.plan_started(at=day, **OF_WARD), Moments().plan_started())
    by_start = [run.root for _, run in sorted(zip(days, runs, strict=True), reverse=True)]

    for name, value in WARD.items():
        assert await pages_of_runs(store, wanted_by(name, value), 2) == by_start, name
        since = wanted_by(name, value, since=START)
        assert await pages_of_runs(store, since, 1) == by_start, name
        within = wanted_by(name, value, since=START, until=START + timedelta(seconds=3))
        assert await pages_of_runs(store, within, 2) == by_start[1:], name


async def test_filtered_lists_exclude_deleted_runs_and_other_projects(
    new_store: NewStore,
) -> None:
    store, elsewhere = new_store(), new_store()
    run, deleted = Moments(), Moments()
    await store.record(run.plan_started(**OF_WARD), deleted.plan_started(**OF_WARD))
    await elsewhere.record(Moments().plan_started(**OF_WARD))
    await store.writer.delete_run(deleted.root)
    for name, value in WARD.items():
        assert await roots(store, wanted_by(name, value)) == [run.root]


async def test_runs_are_found_by_their_service(store: Store) -> None:
    one, other = Moments(), Moments()
    service: dict[str, Any] = {
        "service_name": "shop",
        "service_version": "1.4",
        "deployment_environment": "test",
    }
    await store.record(
        one.plan_started(**service),
        other.plan_started(**service | {"service_name": "bank", "deployment_environment": None}),
    )
    shown = await store.reader.read_run(one.root)
    assert {name: getattr(shown, name) for name in service} == service
    for wanted, expected in (
        (RunFilter(service="shop", service_version="1.4"), [one.root]),
        (RunFilter(service_version="1.4"), [other.root, one.root]),
        (RunFilter(environment="test"), [one.root]),
        (RunFilter(service="SHOP"), []),
    ):
        assert await roots(store, wanted) == expected, wanted
