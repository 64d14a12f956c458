"""Durable background jobs for asyncio, in the database that you have: PostgreSQL or SQLite."""
