"""The objects of a database from its catalog, for comparison with another database."""

from __future__ import annotations

import psycopg

from tracer.storage.postgres.pool import libpq_url

QUERIES = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            a.attidentity, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND {ours}""",
    "tables": """
        SELECT c.relname, c.relkind, obj_description(c.oid)
        FROM pg_class c WHERE c.relkind <> 'i' AND {ours}""",
    "constraints": """
        SELECT c.relname, k.conname, k.contype, k.condeferrable, k.condeferred, k.convalidated,
            pg_get_constraintdef(k.oid)
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE {ours}""",
    "indexes": """
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisunique
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE {ours}""",
    "policies": """
        SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, p.polname,
            pg_get_expr(p.polqual, p.polrelid), p.polroles
        FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE {ours}""",
    "triggers": """
        SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE NOT t.tgisinternal AND {ours}""",
    "enums": """
        SELECT t.typname, array_agg(e.enumlabel ORDER BY e.enumsortorder)
        FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid
        WHERE t.typnamespace = 'public'::regnamespace GROUP BY t.typname""",
}
OURS = """c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'alembic_version%'
    AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.objid = c.oid AND e.deptype = 'e')"""
"""What is in the schema and no extension's."""

Catalog = dict[str, list[tuple[object, ...]]]


def read_catalog(url: str) -> Catalog:
    with psycopg.connect(libpq_url(url)) as connection:
        return {
            name: sorted(connection.execute(query.format(ours=OURS).encode()).fetchall(), key=repr)
            for name, query in QUERIES.items()
        }
