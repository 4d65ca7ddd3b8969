"""Each promise has tests in the quick profile that are named for it."""

from __future__ import annotations

import ast

import pytest

from tests.house.project_files import ROOT

PROMISES = {
    "a tool call's record is durable before the tool runs, and updated when it ends": (
        "recorder/test_on_postgres.py::test_row_is_committed_when_record_returns",
        "runtime/test_all_kinds.py::test_each_tool_type_is_recorded_before_and_after_running",
        "recorder/test_killed_process.py::test_next_process_delivers_the_spool_of_a_killed_one",
    ),
    "acknowledged data is durable and can be read": (
        "api/test_fresh_reads.py::"
        "test_acknowledged_run_is_never_answered_with_404_before_its_projection",
        "storage/postgres/test_connections.py::test_write_whose_backend_is_killed_stores_all_or_nothing",
        "storage/test_embedded_postgres.py::test_killed_server_restarts_with_committed_data",
        "storage/postgres/test_projectors.py::test_killed_projector_is_replaced",
    ),
    "every sub-plan knows its tool call, and an inferred link is marked": (
        "runtime/test_on_postgres.py::"
        "test_200_parallel_calls_have_distinct_rows_results_and_sub_plans",
        "otel/test_captures.py::test_only_inferred_links_are_marked_as_inferred",
        "otel/test_openinference_agents.py::test_ambiguous_hand_off_is_not_inferred",
    ),
    "nothing is dropped silently, and one bad value costs only that value": (
        "recorder/test_spool.py::test_events_that_a_full_spool_rejects_are_counted_and_logged",
        "api/test_hostile_bodies.py::test_hostile_value_in_a_json_span_rejects_no_other_span",
    ),
    "recording never changes what the agent does": (
        "adapters/test_pydantic_ai.py::test_agent_succeeds_if_recording_raises",
        "adapters/test_openai_agents_tools.py::test_agent_continues_while_the_store_is_down",
        "client/test_threads.py::test_recording_leaves_threads_executors_and_gc_as_they_were",
    ),
    "dead processes are visible": (
        "runtime/test_on_postgres.py::"
        "test_call_of_a_killed_process_is_stored_and_becomes_abandoned",
    ),
    "hidden parameters and other secrets stay out": (
        "tools/test_hidden_everywhere.py::test_forged_token_argument_reaches_no_tool_and_no_record",
        "tools/test_hidden_everywhere.py::test_agent_never_shows_a_hidden_parameter_to_its_model",
        "redaction/test_redaction.py::test_secret_values_are_masked_in_any_surroundings",
        "api/test_canaries.py::test_secrets_in_client_events_are_not_stored_or_logged",
    ),
    "a run is read in a constant number of queries": (
        "storage/postgres/test_tree_queries.py::test_tree_of_a_run_takes_a_constant_number_of_queries",
    ),
    "every failure has its true status, its reason and its message": (
        "tools/test_mcp_recorded.py::test_cancelled_and_timed_out_calls_are_recorded_and_stopped",
        "adapters/test_langchain_runs_ends.py::"
        "test_interrupted_run_is_deferred_and_resumes_as_a_new_run",
        "api/test_capture_errors.py::test_failed_calls_of_every_capture_show_their_message",
    ),
    "one way in, one way out": (
        "house/test_one_way.py::"
        "test_one_way_in_rows_of_records_are_inserted_by_one_module_for_each_of_the_two_inputs",
        "house/test_one_way.py::"
        "test_one_way_out_the_storage_builds_readers_and_routes_get_them_from_one_function",
        "contract/test_agreement.py::test_records_and_trees_are_those_of_the_merged_events",
        "api/test_fresh_reads.py::test_fresh_reads_cover_each_reader_method_of_one_run_or_record",
    ),
    "projects are isolated by the queries and by row-level security": (
        "api/test_two_projects.py::test_no_operation_reads_or_changes_another_project",
        "api/test_two_projects.py::test_row_level_security_blocks_queries_for_the_other_project",
    ),
}


@pytest.mark.parametrize("promise", PROMISES)
def test_promise_is_tested_in_the_quick_profile(promise: str) -> None:
    absent = []
    for test in PROMISES[promise]:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
        found = [each for each in tree.body if getattr(each, "name", "") == name]
        marks = [
            ast.unparse(mark)
            for each in found
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            for mark in each.decorator_list
        ]
        if not found or "pytest.mark.thorough" in marks:
            absent.append(test)
    assert absent == []
