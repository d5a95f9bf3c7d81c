//! Test webhooks: pages request them, the sender of routes sends them.

use std::future::Future;
use std::pin::Pin;

use towpath_db::event::{DeliveryFailure, DeliveryOutcome, RouteTest};

/// Sends a webhook as the route role would.
pub trait TestSender: Send + Sync + 'static {
    /// Sends one and returns its outcome; a failure is not an error.
    fn send(&self, test: RouteTest) -> Pin<Box<dyn Future<Output = Tested> + Send + '_>>;
}

/// The outcome of a test webhook.
#[derive(Debug, Clone)]
pub struct Tested {
    /// The attempt.
    pub outcome: DeliveryOutcome,
    /// Why it failed; none if the receiver accepted it.
    pub failure: Option<DeliveryFailure>,
}
