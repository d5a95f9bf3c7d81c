//! Ids as types of their own, so that a job's id cannot be handed in where a dead letter's
//! is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A text that is no id. It says what one looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id such as 0190f5a4-5c2e-7bb0-9f33-0123456789ab")
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
            /// The bare number, for the database.
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
    /// The copy of a job that ended badly.
    DeadLetterId,
    /// One row of who claims what.
    SubscriptionId,
    /// One right to enqueue.
    GrantId,
    /// Jobs that wait for each other.
    GraphId,
    /// One business process; also the idempotency key of what it sends.
    ProcessId,
    /// Something that happened.
    EventId,
    /// One webhook on its way out.
    DeliveryId,
    /// A token with which an executor works over HTTP.
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
