//! Streams in a segment log of their own.

pub mod disk;
