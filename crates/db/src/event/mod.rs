//! Events: emitting and reading them, who gets them, where routes send them, and what the
//! route role asks for again and again.
//!
//! One typed call per public function of `sql/functions/{event_*,sequencer,recipient,route*,
//! delivery*}.sql`. Start with `docs/guides/events.md`.

mod dead_letter;
mod delivery;
mod emit;
mod maintain;
mod new;
mod read;
mod route;
mod route_operate;
mod route_pass;
mod sequence;
mod stream_delivery;
mod subscription;

pub use dead_letter::{LetterReplayed, Letters, LettersReplayed, RouteDeadLetter, RouteDeadLetterPage};
pub use delivery::{
    AfterDelivery, Claimed, Delivery, DeliveryFailure, DeliveryLease, DeliveryOutcome, FailureClass, Unended,
    UnreadableDelivery,
};
pub use emit::{Emitted, emit, emit_many};
pub use maintain::{BroadcastCheck, BroadcastUsed, Check, EventHealth, Extent, Verified};
pub use new::NewEvent;
pub use read::{
    DeliveryHistory, Event, EventFilter, EventPage, EventWhole, Explained, From, Question, Recipient,
    Recipients, RouteAttempt, WouldDecide,
};
pub use route::{
    ModeSet, Replay, Replayed, Route, RoutePut, RouteRetired, RouteSent, RouteSpec, RouteTest,
    RouteWorkerPut, RouteWorkerSpec, SecretRotated, Span,
};
pub use route_operate::{CircuitClosed, DeliveryAttempt, RouteAttempts, RouteDecision};
pub use route_pass::{Decisions, RouteCursor, RoutePass, RouteWorker, RouteWorkers, Slice};
pub use sequence::Sequenced;
pub use stream_delivery::{
    ClaimedStreams, StreamDelivery, StreamEvent, StreamFailure, StreamOutcome, UnendedStream,
};
pub use subscription::{
    EventActor, EventActorSpec, EventGrant, EventGranted, EventSubscription, EventSubscriptionSpec,
};
