//! Spans of requests and jobs, exported to a collector over OTLP with the feature `export`. An internal part:
//! applications depend on the crate `towpath`.
//!
//! Without a collector a [`Tracer`] and a [`Span`] are null pointers: nothing is measured, allocated or sent. Jobs carry
//! their parent as [`TraceParent`], whether or not this process exports.

#[cfg(feature = "export")]
mod export;

use std::borrow::Cow;
use std::sync::Arc;

use towpath_model::trace::TraceParent;

/// Creates spans, if there is a collector. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<dyn Exporter>>);

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("cannot export traces: {0}; check otlp_endpoint and OTEL_EXPORTER_OTLP_ENDPOINT")]
pub struct Error(String);

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Handles a request.
    Server,
    /// Enqueues work.
    Producer,
    /// Runs that work.
    Consumer,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
}

/// A span. It ends when dropped.
#[derive(Default)]
pub struct Span(Option<Box<dyn ExportedSpan>>);

/// Where spans go.
trait Exporter: Send + Sync {
    fn span(&self, side: Side, parent: Option<TraceParent>, name: String) -> Box<dyn ExportedSpan>;
    fn shut_down(&self) -> Result<(), Error>;
}

/// A span that is exported when it is dropped.
trait ExportedSpan: Send + Sync {
    fn traceparent(&self) -> Option<TraceParent>;
    fn set(&mut self, key: &'static str, value: Value);
    fn fail(&mut self, why: String);
}

impl Tracer {
    /// Whether spans are exported.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts a span below its parent, if any. `name` is called only if spans are exported.
    pub fn span(&self, side: Side, parent: Option<TraceParent>, name: impl FnOnce() -> String) -> Span {
        Span(self.0.as_ref().map(|exporter| exporter.span(side, parent, name())))
    }

    /// Exports the remaining spans. Blocks for a few seconds at most.
    pub fn shut_down(&self) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |exporter| exporter.shut_down())
    }
}

impl Span {
    /// The parent for children of this span; none if it is not exported.
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.0.as_ref()?.traceparent()
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set(key, value.into());
        }
    }

    /// Marks it as failed.
    pub fn fail(&mut self, why: impl FnOnce() -> String) {
        if let Some(span) = &mut self.0 {
            span.fail(why());
        }
    }

    /// Whether it is exported.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text.into())
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}
