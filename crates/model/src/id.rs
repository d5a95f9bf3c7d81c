//! Id types, so that a job's id cannot be passed where a dead letter's is expected.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The text is not an id. The message shows the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid id; expected a UUID such as 0190f5a4-5c2e-7bb0-9f33-0123456789ab")
    }
}

impl std::error::Error for NotAnId {}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// The UUID, for the database.
            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> $name {
                $name(id)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<$name, NotAnId> {
                text.parse().map($name).map_err(|_| NotAnId)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// One job.
    JobId,
    /// One dead letter.
    DeadLetterId,
    /// One subscription of an executor, or of an event recipient.
    SubscriptionId,
    /// One right to enqueue.
    GrantId,
    /// Jobs that wait for each other.
    GraphId,
    /// One business process; also the idempotency key of what it sends.
    ProcessId,
    /// Something that happened.
    EventId,
    /// One webhook delivery.
    DeliveryId,
    /// An executor's token for the HTTP API.
    TokenId,
}

#[cfg(test)]
mod tests {
    use super::JobId;

    #[test]
    fn an_id_reads_back_as_itself() {
        let text = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";
        let id: JobId = text.parse().expect("a uuid");
        assert_eq!(id.to_string(), text);
        assert_eq!(serde_json::to_string(&id).expect("serialises"), format!("\"{text}\""));
        assert!("nonsense".parse::<JobId>().is_err());
    }
}
