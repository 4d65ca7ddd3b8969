"""Events survive any end of a process, and recording does not change how the process ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.client.programs import run_program, types_of
from tracer.records import Status
from tracer.records.events import PlanFinished, PlanStarted, ToolCallFinished

A_PLAN = ["plan_started", "plan_finished"]


@pytest.mark.thorough
@pytest.mark.parametrize("buffered", [False, True])
async def test_program_that_never_closes_its_connection_loses_no_events(
    tmp_path: Path, buffered: bool
) -> None:
    ended = await run_program(
        """
        with tracing.plan("one"):
            pass
        sys.exit(3)
        """,
        tmp_path,
        buffered,
    )

    assert (ended.code, types_of(ended)) == (3, A_PLAN)


@pytest.mark.thorough
async def test_work_of_threads_that_outlive_the_main_thread_is_recorded(tmp_path: Path) -> None:
    ended = await run_program(
        """
        def work():
            with tracing.plan("late"):
                threading.main_thread().join()
                with tracing.tool_call("later", {}):
                    pass

        threading.Thread(target=work).start()
        """,
        tmp_path,
        buffered=True,
    )

    assert ended.code == 0, ended.errors
    assert types_of(ended) == [
        "plan_started",
        "step_started",
        "tool_call_started",
        "tool_call_finished",
        "step_finished",
        "plan_finished",
    ]


@pytest.mark.thorough
async def test_uncaught_exception_records_open_work_as_failed(tmp_path: Path) -> None:
    ended = await run_program(
        """
        with tracing.tool_call("measure", {}):
            raise ValueError("no cuff")
        """,
        tmp_path,
    )

    assert ended.code == 1
    # The recorder's thread may log between the parts in which Python prints them.
    assert "ValueError: " in ended.errors
    assert "no cuff" in ended.errors
    [finished] = [each for each in ended.events if isinstance(each, ToolCallFinished)]
    assert (finished.status, finished.reason) == (Status.FAILED, "tool_error")
    assert finished.error is not None
    assert (finished.error.type, finished.error.message) == ("ValueError", "no cuff")


@pytest.mark.thorough
async def test_ctrl_c_records_open_work_as_cancelled(tmp_path: Path) -> None:
    ended = await run_program(
        """
        # Who starts tests in a shell's background lets them ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with tracing.plan("one"):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        """,
        tmp_path,
    )

    assert ended.code == -signal.SIGINT
    [finished] = [each for each in ended.events if isinstance(each, PlanFinished)]
    assert finished.status is Status.CANCELLED


@pytest.mark.thorough
async def test_recorded_events_survive_kill_9(tmp_path: Path) -> None:
    ended = await run_program(
        """
        with tracing.plan("one"), tracing.tool_call("measure", {"patient": "p-1"}):
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )

    assert ended.code == -signal.SIGKILL
    assert types_of(ended) == ["plan_started", "step_started", "tool_call_started"]


thorough = pytest.mark.thorough


@pytest.mark.parametrize(
    ("leave", "buffered"),
    [
        ("sys.exit(0)", False),
        pytest.param("sys.exit(0)", True, marks=thorough),
        pytest.param("tracing.flush(); os._exit(0)", False, marks=thorough),
        pytest.param("tracing.flush(); os._exit(0)", True, marks=thorough),
    ],
)
async def test_forked_process_records_below_the_work_that_was_open_at_the_fork(
    tmp_path: Path, leave: str, buffered: bool
) -> None:
    ended = await run_program(
        f"""
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads
        with tracing.tool_call("fork", {{}}):
            child = os.fork()
            if child == 0:
                with tracing.plan("in the child"):
                    pass
                {leave}
            _, status = os.waitpid(child, 0)
            with tracing.plan("in the parent"):
                pass
        sys.exit(os.waitstatus_to_exitcode(status))
        """,
        tmp_path,
        buffered,
    )

    assert ended.code == 0, ended.errors
    plans = {each.title: each for each in ended.events if isinstance(each, PlanStarted)}
    assert set(plans) == {"fork", "in the child", "in the parent"}
    child, parent = plans["in the child"], plans["in the parent"]
    assert child.tool_call_id == parent.tool_call_id is not None
    assert child.root_plan_id == plans["fork"].plan_id
    assert child.recorder_id != parent.recorder_id == plans["fork"].recorder_id
    assert {each.plan_id for each in ended.events if isinstance(each, PlanFinished)} == {
        plan.plan_id for plan in plans.values()
    }


@pytest.mark.thorough
@pytest.mark.parametrize("buffered", [False, True])
async def test_processes_started_by_multiprocessing_can_record(
    tmp_path: Path, buffered: bool
) -> None:
    ended = await run_program(
        """
        import multiprocessing, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads

        def work(number):
            with tracing.plan(f"plan {number}"):
                pass

        context = multiprocessing.get_context("fork")
        started = [context.Process(target=work, args=(number,)) for number in range(4)]
        for each in started:
            each.start()
        for each in started:
            each.join()
        sys.exit(max(each.exitcode for each in started))
        """,
        tmp_path,
        buffered,
    )

    assert ended.code == 0, ended.errors
    starts = [each for each in ended.events if isinstance(each, PlanStarted)]
    assert sorted(str(each.title) for each in starts) == [f"plan {number}" for number in range(4)]
    assert len({each.recorder_id for each in starts}) == 4
    assert len(ended.events) == 8


@pytest.mark.thorough
async def test_parent_keeps_recording_after_a_fork_closes_its_connection(tmp_path: Path) -> None:
    ended = await run_program(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads
        child = os.fork()
        if child == 0:
            tracing.close()
            with tracing.plan("dropped"):
                pass
            sys.exit(0)
        os.waitpid(child, 0)
        with tracing.plan("kept"):
            pass
        """,
        tmp_path,
    )

    assert ended.code == 0, ended.errors
    assert "events_dropped" in ended.errors
    assert [each.title for each in ended.events if isinstance(each, PlanStarted)] == ["kept"]
