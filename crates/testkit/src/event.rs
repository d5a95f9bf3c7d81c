//! Routes and subscriptions with defaults for everything that a test does not choose.

use serde_json::{Value, json};
use towpath_db::event::{EventSubscriptionSpec, RouteSpec};

/// A route of every event to this target.
pub fn route<'a>(route_name: &'a str, target_kind: &'a str, target: Value) -> RouteSpec<'a> {
    RouteSpec {
        route_name,
        target_kind,
        target,
        event_domain: None,
        event_type: None,
        event_stream: None,
        recipient_filter: None,
        payload_filter: json!({}),
        ordering: "none",
        retry_seconds: None,
        rate_limit_per_second: None,
        worker_name: "default",
        notes: None,
        actor: "tester",
    }
}

/// A subscription of a recipient to all events of a domain.
pub fn subscription<'a>(recipient_ref: &'a str, event_domain: &'a str) -> EventSubscriptionSpec<'a> {
    EventSubscriptionSpec {
        recipient_ref,
        event_domain,
        event_type: None,
        event_stream: None,
        scope_subject_table: None,
        scope_filter: json!({}),
        mute: false,
        notes: None,
        actor: "tester",
    }
}
