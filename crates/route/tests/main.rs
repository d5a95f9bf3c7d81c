//! The route role against a real database and real sockets.
