//! Spans of requests and jobs, exported to a collector over OTLP.
//!
//! Without a collector a [`Tracer`] and a [`Span`] are null pointers: nothing is measured, allocated or sent. Jobs carry
//! their parent as [`TraceParent`], whether or not this process exports.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use towpath_model::trace::TraceParent;

/// How long exporting the last spans may take at shutdown.
const LAST_EXPORT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Creates spans, if there is a collector. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

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

/// A span. It ends when dropped.
#[derive(Default)]
pub struct Span(Option<Box<opentelemetry_sdk::trace::Span>>);

impl Tracer {
    /// Exports to a collector at `endpoint` (`http://host:4318`), or as OpenTelemetry's variables say. In batches, from its
    /// own thread.
    pub fn start(endpoint: Option<&str>) -> Result<Tracer, Error> {
        let exporter = SpanExporter::builder().with_http();
        let exporter = match endpoint {
            Some(base) => exporter.with_endpoint(format!("{}/v1/traces", base.trim_end_matches('/'))),
            None => exporter,
        };
        let exporter = exporter.build().map_err(|error| Error(error.to_string()))?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("towpath");
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer("towpath");
        Ok(Tracer(Some(Arc::new(Inner { provider, tracer }))))
    }

    /// Whether spans are exported.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts a span below its parent, if any. `name` is called only if spans are exported.
    pub fn span(&self, side: Side, parent: Option<TraceParent>, name: impl FnOnce() -> String) -> Span {
        let Some(inner) = &self.0 else { return Span(None) };
        let kind = match side {
            Side::Server => SpanKind::Server,
            Side::Producer => SpanKind::Producer,
            Side::Consumer => SpanKind::Consumer,
        };
        let context = parent
            .map_or_else(Context::new, |parent| Context::new().with_remote_span_context(context(parent)));
        let builder = inner.tracer.span_builder(name()).with_kind(kind);
        Span(Some(Box::new(inner.tracer.build_with_context(builder, &context))))
    }

    /// Exports the remaining spans. Blocks for a few seconds at most.
    pub fn shut_down(&self) -> Result<(), Error> {
        let Some(inner) = &self.0 else { return Ok(()) };
        inner.provider.shutdown_with_timeout(LAST_EXPORT_WAIT_MAX).map_err(|error| Error(error.to_string()))
    }
}

impl Span {
    /// The parent for children of this span; none if it is not exported.
    pub fn traceparent(&self) -> Option<TraceParent> {
        let context = self.0.as_ref()?.span_context();
        TraceParent::new(
            u128::from_be_bytes(context.trace_id().to_bytes()),
            u64::from_be_bytes(context.span_id().to_bytes()),
            context.is_sampled(),
        )
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Marks it as failed.
    pub fn fail(&mut self, why: impl FnOnce() -> String) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(why()));
        }
    }

    /// Whether it is exported.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

fn context(parent: TraceParent) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(parent.trace_id().to_be_bytes()),
        SpanId::from_bytes(parent.span_id().to_be_bytes()),
        if parent.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() },
        true,
        TraceState::default(),
    )
}
