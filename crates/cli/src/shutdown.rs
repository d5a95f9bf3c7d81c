//! The first signal asks everything to finish, the second ends it at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first SIGINT or SIGTERM cancels. The second ends the process; the
/// private PostgreSQL goes with it, because its leash does.
pub(crate) fn on_signal() -> anyhow::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = signals()?;
    let token = CancellationToken::new();
    let first = token.clone();
    tokio::spawn(async move {
        let name = either(&mut interrupt, &mut terminate).await;
        tracing::info!("{name}: finishing what is under way; once more to end at once");
        first.cancel();
        either(&mut interrupt, &mut terminate).await;
        tracing::warn!("ending at once");
        std::process::exit(130);
    });
    Ok(token)
}

/// Both signals, taken away from their default of ending the process.
pub(crate) fn signals() -> anyhow::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "interrupted",
        _ = terminate.recv() => "terminated",
    }
}
