//! Test webhooks: the pages ask, the sender of routes sends.

use std::future::Future;
use std::pin::Pin;

use towpath_db::event::{DeliveryFailure, DeliveryOutcome, RouteTest};

/// Who sends a webhook as the route role would.
pub trait TestSender: Send + Sync + 'static {
    /// Sends one and says what came of it. A failure is an answer too.
    fn send(&self, test: RouteTest) -> Pin<Box<dyn Future<Output = Tested> + Send + '_>>;
}

/// What came of a test webhook.
#[derive(Debug, Clone)]
pub struct Tested {
    /// What is known about the attempt.
    pub outcome: DeliveryOutcome,
    /// Why it failed; none if the receiver took it.
    pub failure: Option<DeliveryFailure>,
}
