"""The tables of the shop."""

import os
from typing import Any

import psycopg

TABLES = """
    create schema if not exists shop;
    create table if not exists shop.orders (order_id bigint primary key, cents bigint not null);
    create table if not exists shop.invoices (
        invoice_id bigint generated always as identity primary key,
        order_id bigint not null unique references shop.orders)
"""


def connect() -> psycopg.Connection[tuple[Any, ...]]:
    """Connects to the database in DATABASE_URL, and creates the tables if they are missing."""
    connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    with connection.transaction():
        # Two programs that start at once must not create them twice.
        connection.execute("select pg_advisory_xact_lock(4600)")
        connection.execute(TABLES)
    return connection
