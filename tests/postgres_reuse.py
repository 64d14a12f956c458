"""Whether a test's database may be another's after it, and emptying it: a new one each takes most of a test's time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

# As long as a table has no statistics, PostgreSQL plans as if it had ten pages: up to there, what's left of rows that are
# gone changes no plan.
PAGES = 10

# The server counts whatever is written to its catalogs, so that no kind of change has to be thought of. The counts are
# there when a session has ended, and are zero in a new database: `stats_reset` tells apart that they have begun anew.
STATE = """
select
    (select sum(pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))::bigint
     from pg_class where oid < 16384 and relkind = 'r' and not relisshared) as changes,
    d.stats_reset as counted_since,
    (select sum(relpages)::bigint from pg_class where oid >= 16384) as pages,
    (select sum(reltuples)::bigint from pg_class where oid >= 16384) as tuples,
    (select row(b.datdba, b.datconnlimit, b.datallowconn, b.datistemplate, b.datacl)::text
     from pg_database b where b.oid = d.datid) as settings,
    (select count(*) from pg_db_role_setting where setdatabase = d.datid)
        + (select count(*) from pg_subscription where subdbid = d.datid)
        + (select count(*) from pg_replication_slots where database = d.datname)
        + (select count(*) from pg_prepared_xacts where database = d.datname) as others,
    {kept} as kept
"""
# What emptying needs to know, and a database need not have in common with the template.
USE = """,
    d.sessions,
    (select max(pg_relation_size(oid)) / current_setting('block_size')::int
     from pg_class where oid >= 16384 and relkind in ('r', 't')) as largest,
    array(select oid::regclass::text from pg_class
          where oid >= 16384 and relkind = 'r' and pg_relation_size(oid) > 0) as written,
    array(select seqrelid::regclass::text from pg_sequence where pg_sequence_last_value(seqrelid) is not null) as advanced
from pg_stat_database d where d.datname = current_database()
"""


class State(NamedTuple):
    """All of a database that isn't rows: two in the same state differ in rows at most."""

    changes: int
    counted_since: datetime | None
    pages: int
    tuples: int
    settings: str
    others: int
    kept: str


class Template:
    """The database that the others are copies of.

    Arguments:
        name: The database's.
        url: Its address.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        with psycopg.connect(url, autocommit=True) as connection:
            written = connection.execute(
                "select oid::regclass::text from pg_class where oid >= 16384 and relkind = 'r' and pg_relation_size(oid) > 0"
            ).fetchall()
            self._kept = frozenset(str(table) for [table] in written)
            contents = [f"(select string_agg(t::text, ' ' order by t::text) from {table} t)" for table in sorted(self._kept)]
            self._query = STATE.format(kept=f"md5(concat({', '.join(contents)}))") + USE
            found = _asked(connection, self._query)
            assert not found.advanced, f"a copy's sequences couldn't begin anew: {found.advanced}"
            self.state = _state(found)._replace(changes=0, counted_since=None)  # a copy's counts begin with its first use

    def emptied(self, url: str, before: State) -> State | None:
        """Bring a copy that everybody has left back to what the template is.

        Arguments:
            url: The copy's address.
            before: Its state when it was last as the template.

        Returns:
            Its state from now on; None if it can't be used again, as more than rows has changed.
        """
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                found = _asked(connection, self._query)
                if _state(found) != before or not found.sessions or found.largest > PAGES:
                    return None
                return before._replace(changes=0, counted_since=self._empty(connection, found))
        except psycopg.Error:  # it's gone, takes no connections, or not ours
            return None

    def _empty(self, connection: psycopg.Connection[Any], found: Any) -> datetime:
        """Delete all rows but the template's, let sequences and counts begin anew; returns when the counts did."""
        statements = [
            "set track_counts = off",  # or the rows deleted here were counted at the end of this session
            *(f"delete from {table}" for table in found.written if table not in self._kept),
            *(
                f"select setval('{name}', seqstart, false) from pg_sequence where seqrelid = '{name}'::regclass"
                for name in found.advanced
            ),
            "select pg_stat_reset()",
            "select stats_reset from pg_stat_database where datname = current_database()",
        ]
        cursor = connection.execute("; ".join(statements).encode())
        while cursor.nextset():
            pass
        [[since]] = cursor.fetchall()
        assert isinstance(since, datetime)
        return since


def _asked(connection: psycopg.Connection[Any], query: str) -> Any:
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query.encode()).fetchone()


def _state(found: Any) -> State:
    return State(*[getattr(found, name) for name in State._fields])
