"""A small shop: orders, and the job that ships them."""
