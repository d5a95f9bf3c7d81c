"""A small shop: orders, and a job that writes their invoices."""
