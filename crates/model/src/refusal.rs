//! The words with which the database refuses.
//!
//! Every public SQL function answers `{ok: true, …}` or `{ok: false, error: 'word', …}`; the doors
//! (`towpath.enqueue` and its like) raise the same refusal with an SQLSTATE of the class `TP`. Words and
//! codes are a closed list, written once here and once in `sql/README.md`; a test holds the two
//! and the SQL files together.

use std::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident = $word:literal $sqlstate:literal,)*) => {
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

            /// The SQLSTATE with which a door raises it.
            pub fn sqlstate(self) -> &'static str {
                match self { $(Refusal::$variant => $sqlstate,)* }
            }
        }
    };
}

refusals! {
    /// The gate in front of the function is closed, missing or unreadable.
    GateClosed = "gate_closed" "TP001",
    /// An argument is missing or malformed; `detail` says which and how.
    Invalid = "invalid" "TP002",
    /// The value does not fit the config key.
    InvalidValue = "invalid_value" "TP003",
    /// No config key has this name.
    UnknownKey = "unknown_key" "TP004",
    /// Whoever asks was not granted this.
    NotAuthorised = "not_authorised" "TP005",
    /// The thing named does not exist, or not any more.
    NotFound = "not_found" "TP006",
    /// Its state does not allow this; `state` or `detail` says why.
    Conflict = "conflict" "TP007",
    /// Somebody else holds the attempt now, or it has ended.
    LeaseLost = "lease_lost" "TP008",
    /// The executor has no enabled subscription, so there is nothing it may claim.
    NoSubscription = "no_subscription" "TP009",
    /// The kind is paused.
    Paused = "paused" "TP010",
}

impl Refusal {
    /// Reads a word. An unknown one means that the schema is newer than this binary.
    pub fn from_word(word: &str) -> Option<Refusal> {
        Refusal::ALL.iter().copied().find(|refusal| refusal.word() == word)
    }

    /// Reads an SQLSTATE; none of another class is a refusal.
    pub fn from_sqlstate(sqlstate: &str) -> Option<Refusal> {
        Refusal::ALL.iter().copied().find(|refusal| refusal.sqlstate() == sqlstate)
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
    fn words_and_codes_read_back_as_themselves() {
        for &refusal in Refusal::ALL {
            assert_eq!(Refusal::from_word(refusal.word()), Some(refusal));
            assert_eq!(Refusal::from_sqlstate(refusal.sqlstate()), Some(refusal));
        }
        assert_eq!(Refusal::from_word("no_such_word"), None);
        assert_eq!(Refusal::from_sqlstate("23505"), None);
    }
}
