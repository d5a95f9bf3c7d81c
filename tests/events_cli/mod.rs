//! The operator's commands for events.

mod events;
mod gate;
mod json;
mod routes;
mod subscriptions;
mod up;

use serde_json::Value;
use towpath_db::event::NewEvent;

use crate::jobs_cli::Shell;

impl Shell {
    /// Emits an event of this domain and numbers it; returns its id.
    pub(crate) async fn emit(&self, domain: &str, payload: Value) -> String {
        let event = NewEvent::new(domain, "created").payload(&payload).unwrap();
        let id = self.database.event_emit(&event).await.unwrap().event_id.to_string();
        self.database.event_sequence(1000).await.unwrap();
        id
    }

    /// Runs the route worker until nothing is left.
    pub(crate) async fn route(&self) {
        while self.database.route_worker_run("default", 1000, None).await.unwrap().more {}
    }
}
