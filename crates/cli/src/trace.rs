//! Traces: where they go, if anywhere.

use clap::Args;
use towpath_trace::Tracer;

use crate::settings::Settings;

/// The variables by which OpenTelemetry's own programs are told the same.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Settings of traces.
#[derive(Args, Debug, Clone)]
pub(crate) struct TraceSettings {
    /// Collector that gets traces by OTLP over HTTP, as in http://127.0.0.1:4318 [default: none]
    #[arg(long, global = true, env = "TOWPATH_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// A tracer that exports if somebody said where to.
pub(crate) fn tracer(settings: &Settings) -> anyhow::Result<Tracer> {
    let endpoint = settings.trace.otlp_endpoint.as_deref();
    let told = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if endpoint.is_none() && !VARIABLES.iter().any(told) {
        return Ok(Tracer::default());
    }
    let tracer = Tracer::start(endpoint)?;
    tracing::info!("traces go to {}", endpoint.unwrap_or("where OTEL_EXPORTER_OTLP_ENDPOINT says"));
    Ok(tracer)
}

/// Sends the last spans.
pub(crate) async fn end(tracer: Tracer) {
    let ended = tokio::task::spawn_blocking(move || tracer.shut_down()).await;
    if let Ok(Err(error)) = ended {
        tracing::warn!("the last spans are lost: {error}");
    }
}
