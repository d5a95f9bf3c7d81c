//! Streams in this process.

use std::sync::Arc;

use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::json;
use towpath_model::stream::state::{Refusal, Shape};
use towpath_streams::{Append, Create, Error, FanOut, Messages, Retention, Store};

use super::{Appending, EventAppend, Refused, Streams};

/// The store that this process serves.
pub struct Local {
    store: Arc<dyn Store>,
    fan_out: FanOut,
}

impl Streams for Local {
    fn append(&self, append: EventAppend) -> Appending<'_> {
        Box::pin(async move {
            match self.publish(&append).await {
                Err(Error::NotFound(name)) if name.is_sessions() => Err(Refused::Never(format!(
                    "stream {name} is reserved for a session; change the route's target"
                ))),
                Err(Error::NotFound(_)) => {
                    self.create(&append).await.map_err(refused)?;
                    self.publish(&append).await.map_err(refused)
                }
                other => other.map_err(refused),
            }
        })
    }
}

impl Local {
    /// Streams whose sessions are in the same store.
    pub fn new(store: Arc<dyn Store>) -> Local {
        Local { store, fan_out: FanOut::AT_ONCE }
    }

    /// Streams whose sessions are on another server: the store cannot deliver to them, so what is
    /// appended waits for the fan-out worker.
    pub fn with_sessions_elsewhere(store: Arc<dyn Store>) -> Local {
        Local { store, fan_out: FanOut::LATER }
    }

    async fn publish(&self, append: &EventAppend) -> Result<(), Error> {
        let run = json::flatten(append.body.as_bytes()).expect("the database answers JSON objects");
        let event = Append {
            messages: Messages { data: run.data.into(), ends: run.ends },
            content_type: Some(json_type()),
            producer: Some(append.producer.clone()),
            ..Append::default()
        };
        self.store.publish(append.name.clone(), event, self.fan_out).await.map(drop)
    }

    async fn create(&self, append: &EventAppend) -> Result<(), Error> {
        let shape = Shape { content_type: Some(json_type()), expiry: None, closed: false, fork: None };
        let create = Create { shape, messages: Messages::default(), retention: Retention::default() };
        self.store.create(append.name.clone(), create).await.map(drop)
    }
}

fn json_type() -> ContentType {
    ContentType::parse("application/json").expect("a constant type is a type")
}

fn refused(error: Error) -> Refused {
    match error {
        Error::Refused { refusal: Refusal::StaleEpoch { current_epoch }, .. } => {
            Refused::Seen { newest: current_epoch }
        }
        Error::Refused { .. }
        | Error::Conflict { .. }
        | Error::Deleted(_)
        | Error::TooLarge(_)
        | Error::ReadOnly(_) => Refused::Never(error.to_string()),
        error => Refused::Later(error.to_string()),
    }
}
