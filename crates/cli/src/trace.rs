//! Tracing: export to a collector, if one is configured.

use clap::Args;
use towpath_trace::Tracer;

use crate::settings::Settings;

/// OpenTelemetry's standard variables for the same setting.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Settings of traces.
#[derive(Args, Debug, Clone)]
pub(crate) struct TraceSettings {
    /// OTLP/HTTP collector for traces, as in http://127.0.0.1:4318 (default: none)
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// A tracer that exports if a collector is configured.
pub(crate) fn tracer(settings: &Settings) -> anyhow::Result<Tracer> {
    let endpoint = settings.trace.otlp_endpoint.as_deref();
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if endpoint.is_none() && !VARIABLES.iter().any(is_set) {
        return Ok(Tracer::default());
    }
    let tracer = Tracer::start(endpoint)?;
    tracing::info!(
        "exporting traces to {}",
        endpoint.unwrap_or("the collector in OTEL_EXPORTER_OTLP_ENDPOINT")
    );
    Ok(tracer)
}

/// Sends the last spans.
pub(crate) async fn end(tracer: Tracer) {
    let ended = tokio::task::spawn_blocking(move || tracer.shut_down()).await;
    if let Ok(Err(error)) = ended {
        tracing::warn!("the last spans could not be exported: {error}");
    }
}
