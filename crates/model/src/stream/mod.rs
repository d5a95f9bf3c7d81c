//! The Durable Streams protocol as pure functions: parsing requests, deciding changes, writing
//! answers.

pub mod content_type;
pub mod cursor;
pub mod envelope;
pub mod etag;
pub mod expiry;
pub mod glob;
pub mod json;
pub mod name;
pub mod offset;
pub mod producer;
pub mod sse;
pub mod state;
pub mod subscription;
