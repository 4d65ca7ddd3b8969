"""Store empty lists as null.

A tool call has two lists, which are nearly always empty: together they take as many bytes as keep a
ninth call off a page. Rows that exist stay as they are; readers accept both.
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

LISTS = {
    "run": ("masked", "tags"),
    "plan_execution_record": ("masked",),
    "agent_execution_record": ("masked",),
    "think_act_record": ("masked",),
    "act_tool_info": ("masked", "forged_arguments"),
}


def upgrade() -> None:
    for table, columns in LISTS.items():
        changes = [f"ALTER {each} DROP NOT NULL, ALTER {each} DROP DEFAULT" for each in columns]
        op.execute(f"ALTER TABLE {table} {', '.join(changes)}")


def downgrade() -> None:
    for table, columns in LISTS.items():
        values = [f"{each} = coalesce({each}, '{{}}')" for each in columns]
        are_null = [f"{each} IS NULL" for each in columns]
        op.execute(f"UPDATE {table} SET {', '.join(values)} WHERE {' OR '.join(are_null)}")
    op.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no table changes while checks are pending
    for table, columns in LISTS.items():
        changes = [f"ALTER {each} SET NOT NULL" for each in columns]
        changes += [f"ALTER {each} SET DEFAULT '{{}}'" for each in columns if each != "tags"]
        op.execute(f"ALTER TABLE {table} {', '.join(changes)}")
    op.execute("SET CONSTRAINTS ALL DEFERRED")  # older migrations delete rows in any order
