//! Events: numbering them, routing them, and sending what routes made of them.
//!
//! One typed call per public function of `sql/functions/{sequencer,route_worker,delivery,
//! delivery_finish}.sql`: what the route role asks for again and again.

mod delivery;
mod route_pass;
mod sequence;

pub use delivery::{
    AfterDelivery, Claimed, Delivery, DeliveryFailure, DeliveryLease, DeliveryOutcome, FailureClass, Unended,
};
pub use route_pass::{Decisions, RouteCursor, RoutePass, RouteWorker, RouteWorkers, Slice};
pub use sequence::Sequenced;
