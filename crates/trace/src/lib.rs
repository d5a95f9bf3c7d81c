//! Spans: what happened to a request on its way through jobs, told to a collector by OTLP.
//!
//! Off, a [`Tracer`] is a null pointer and a [`Span`] another: nothing is measured, allocated or
//! sent. Parents travel as [`TraceParent`], with the job, whether or not anybody exports here.

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

/// How long the last spans may take at the end of the process.
const LAST_EXPORT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Makes spans, or none. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("traces cannot be exported: {0}; see otlp_endpoint and OTEL_EXPORTER_OTLP_ENDPOINT")]
pub struct Error(String);

/// Which side of an exchange a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Answers a request.
    Server,
    /// Hands work to somebody later.
    Producer,
    /// Does that work.
    Consumer,
}

/// Something that takes time. It ends when it is dropped.
#[derive(Default)]
pub struct Span(Option<Box<opentelemetry_sdk::trace::Span>>);

impl Tracer {
    /// Exports to a collector: by `endpoint` (`http://host:4318`), or as the variables that
    /// OpenTelemetry names say. In batches, from a thread of its own.
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

    /// Whether spans go anywhere.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A span that begins now, below its parent if it has one. `name` is only asked for when on.
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

    /// Sends what is left. Blocks, for a few seconds at most.
    pub fn shut_down(&self) -> Result<(), Error> {
        let Some(inner) = &self.0 else { return Ok(()) };
        inner.provider.shutdown_with_timeout(LAST_EXPORT_WAIT_MAX).map_err(|error| Error(error.to_string()))
    }
}

impl Span {
    /// What the children of this span name as their parent; none if nobody exports it.
    pub fn traceparent(&self) -> Option<TraceParent> {
        let context = self.0.as_ref()?.span_context();
        TraceParent::new(
            u128::from_be_bytes(context.trace_id().to_bytes()),
            u64::from_be_bytes(context.span_id().to_bytes()),
            context.is_sampled(),
        )
    }

    /// Says something about it.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// It did not go well.
    pub fn fail(&mut self, why: impl FnOnce() -> String) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(why()));
        }
    }

    /// Whether anybody will see it.
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
