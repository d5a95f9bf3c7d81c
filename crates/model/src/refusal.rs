//! The words with which the database refuses.
//!
//! Every public SQL function answers `{ok: true, …}` or `{ok: false, error: 'word', …}`.
//! The words are a closed list, written once here and once in `sql/README.md`; a test
//! holds the two and the SQL files together.

use std::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// One word of refusal, as it stands in an answer's `error` field.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Refusal { $($(#[$doc])* $variant,)* }

        impl Refusal {
            /// Every word, in the order of `sql/README.md`.
            pub const ALL: &[Refusal] = &[$(Refusal::$variant,)*];

            /// The word itself.
            pub fn word(self) -> &'static str {
                match self { $(Refusal::$variant => $word,)* }
            }
        }
    };
}

refusals! {
    /// The gate in front of the function is closed, missing or unreadable.
    GateClosed = "gate_closed",
    /// An argument is missing or malformed; `detail` says which and how.
    Invalid = "invalid",
    /// The value does not fit the config key.
    InvalidValue = "invalid_value",
    /// No config key has this name.
    UnknownKey = "unknown_key",
    /// Whoever asks was not granted this.
    NotAuthorised = "not_authorised",
    /// The thing named does not exist, or not any more.
    NotFound = "not_found",
    /// Its state does not allow this; `state` or `detail` says why.
    Conflict = "conflict",
    /// Somebody else holds the attempt now, or it has ended.
    LeaseLost = "lease_lost",
    /// The executor has no enabled subscription, so there is nothing it may claim.
    NoSubscription = "no_subscription",
    /// The kind is paused.
    Paused = "paused",
}

impl Refusal {
    /// Reads a word. An unknown one means that the schema is newer than this binary.
    pub fn from_word(word: &str) -> Option<Refusal> {
        Refusal::ALL.iter().copied().find(|refusal| refusal.word() == word)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn words_read_back_as_themselves() {
        for &refusal in Refusal::ALL {
            assert_eq!(Refusal::from_word(refusal.word()), Some(refusal));
        }
        assert_eq!(Refusal::from_word("no_such_word"), None);
    }
}
