//! The first signal starts a graceful shutdown, the second exits at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first SIGINT or SIGTERM cancels. The second ends the process, and the private
/// PostgreSQL stops with it.
pub(crate) fn on_signal() -> anyhow::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = signals()?;
    let token = CancellationToken::new();
    let first = token.clone();
    tokio::spawn(async move {
        let name = either(&mut interrupt, &mut terminate).await;
        tracing::info!("{name}: shutting down; press Ctrl-C or signal again to exit at once");
        first.cancel();
        either(&mut interrupt, &mut terminate).await;
        tracing::warn!("second signal: exiting at once");
        std::process::exit(130);
    });
    Ok(token)
}

/// Both signals, so that they no longer end the process by default.
pub(crate) fn signals() -> anyhow::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "interrupted",
        _ = terminate.recv() => "terminated",
    }
}
