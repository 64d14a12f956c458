"""The shop's own tables, in the same database as its jobs: what one transaction writes, it writes to both."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import URL, ForeignKey, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import CreateTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["DATABASE_URL", "Order", "Sessions", "Shipment", "open_database"]

DATABASE_URL = os.environ.get("AIOQUEUE_URL") or "sqlite:///shop.db"
"""Of the database: `sqlite:///shop.db`, or `postgresql://user@host/database`."""

Sessions: TypeAlias = async_sessionmaker[AsyncSession]


class Base(DeclarativeBase):
    """All tables."""


class Order(Base):
    """What a customer wants."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    quantity: Mapped[int]


class Shipment(Base):
    """What was sent. An order has one at most, however often its job is run: the primary key says so."""

    __tablename__ = "shipments"

    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), primary_key=True, autoincrement=False)
    parcel: Mapped[str]


@asynccontextmanager
async def open_database(url: str | None = None) -> AsyncIterator[Sessions]:
    """Give sessions on the database in which the queue is, too.

    Arguments:
        url: In aioqueue's own form; None for the shop's own database.
    """
    engine = create_async_engine(_sqlalchemy_url(url or DATABASE_URL))
    try:
        async with engine.begin() as connection:
            await _create_tables(connection)
        yield async_sessionmaker(engine, expire_on_commit=False)
    finally:
        await engine.dispose()


def _sqlalchemy_url(url: str) -> URL:
    given = make_url(url)
    # aioqueue's own options aren't for SQLAlchemy.
    if given.get_backend_name() == "sqlite":
        return given.set(drivername="sqlite+aiosqlite", query={"timeout": "30"})
    own = ("schema", "timeout", "notify", "listen_url", "pgbouncer", "prepared_statements", "statement_cache_size", "pool_size")
    return given.set(drivername="postgresql+asyncpg").difference_update_query(own)


async def _create_tables(connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":
        # Several servers start at once, and IF NOT EXISTS alone isn't safe against that.
        await connection.execute(text("select pg_advisory_xact_lock(hashtext('shop'))"))
    for table in Base.metadata.sorted_tables:
        await connection.execute(CreateTable(table, if_not_exists=True))
