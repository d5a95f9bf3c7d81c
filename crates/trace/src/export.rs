//! Export by OTLP over HTTP, with the official crates.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use towpath_model::trace::TraceParent;

use crate::{Error, ExportedSpan, Exporter, Side, Tracer, Value};

/// How long exporting the last spans may take at shutdown.
const LAST_EXPORT_WAIT_MAX: Duration = Duration::from_secs(5);

struct Otlp {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

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
        Ok(Tracer(Some(Arc::new(Otlp { provider, tracer }))))
    }
}

impl Exporter for Otlp {
    fn span(&self, side: Side, parent: Option<TraceParent>, name: String) -> Box<dyn ExportedSpan> {
        let kind = match side {
            Side::Server => SpanKind::Server,
            Side::Producer => SpanKind::Producer,
            Side::Consumer => SpanKind::Consumer,
        };
        let context = parent
            .map_or_else(Context::new, |parent| Context::new().with_remote_span_context(context(parent)));
        let builder = self.tracer.span_builder(name).with_kind(kind);
        Box::new(self.tracer.build_with_context(builder, &context))
    }

    fn shut_down(&self) -> Result<(), Error> {
        self.provider.shutdown_with_timeout(LAST_EXPORT_WAIT_MAX).map_err(|error| Error(error.to_string()))
    }
}

impl ExportedSpan for opentelemetry_sdk::trace::Span {
    fn traceparent(&self) -> Option<TraceParent> {
        let context = self.span_context();
        TraceParent::new(
            u128::from_be_bytes(context.trace_id().to_bytes()),
            u64::from_be_bytes(context.span_id().to_bytes()),
            context.is_sampled(),
        )
    }

    fn set(&mut self, key: &'static str, value: Value) {
        let value: opentelemetry::Value = match value {
            Value::Text(text) => text.into(),
            Value::Number(number) => number.into(),
        };
        self.set_attribute(KeyValue::new(key, value));
    }

    fn fail(&mut self, why: String) {
        self.set_status(Status::error(why));
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
