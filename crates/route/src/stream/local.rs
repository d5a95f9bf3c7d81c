//! Streams in this process.

use std::sync::Arc;

use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::json;
use towpath_model::stream::state::{Refusal, Shape};
use towpath_streams::{Append as StoreAppend, Beyond, Create, Error, FanOut, Messages, Retention, Store};

use super::{Append, Appending, Refused, Streams};

/// Sessions that follow the stream hear of it with the append: that costs the same for any number.
const AT_ONCE: FanOut = FanOut { inline_max: usize::MAX, beyond: Beyond::Queue };
/// What is appended waits for the worker that delivers.
const LATER: FanOut = FanOut { inline_max: 0, beyond: Beyond::Queue };

/// The store that this process serves.
pub struct Local {
    store: Arc<dyn Store>,
    fan_out: FanOut,
}

impl Streams for Local {
    fn append(&self, append: Append) -> Appending<'_> {
        Box::pin(async move {
            match self.once(&append).await {
                Err(Error::NotFound(name)) if name.is_sessions() => Err(Refused::Never(format!(
                    "stream {name} has the name of a session's stream; give the route another target"
                ))),
                Err(Error::NotFound(_)) => {
                    self.create(&append).await.map_err(refused)?;
                    self.once(&append).await.map_err(refused)
                }
                other => other.map_err(refused),
            }
        })
    }
}

impl Local {
    /// Streams whose sessions are in the same store.
    pub fn new(store: Arc<dyn Store>) -> Local {
        Local { store, fan_out: AT_ONCE }
    }

    /// Streams whose sessions are on another server: the store cannot deliver to them, so it must not say
    /// that it did.
    pub fn with_sessions_elsewhere(store: Arc<dyn Store>) -> Local {
        Local { store, fan_out: LATER }
    }

    async fn once(&self, append: &Append) -> Result<(), Error> {
        let run = json::flatten(append.body.as_bytes()).expect("the database answers JSON objects");
        let wish = StoreAppend {
            messages: Messages { data: run.data.into(), ends: run.ends },
            content_type: Some(json_type()),
            producer: Some(append.producer.clone()),
            ..StoreAppend::default()
        };
        self.store.publish(append.name.clone(), wish, self.fan_out).await.map(drop)
    }

    async fn create(&self, append: &Append) -> Result<(), Error> {
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
