//! The refusal codes of the database.
//!
//! Every public SQL function returns `{ok: true, …}` or `{ok: false, error: 'word', …}`; the doors
//! (`towpath.enqueue` and the like) raise the same refusal with an SQLSTATE of class `TP`. Words and SQLSTATEs
//! are a closed list, written once here and once in `sql/README.md`; a test compares both with the SQL files.

use std::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident = $word:literal $sqlstate:literal,)*) => {
        /// A refusal, as in the `error` field of an answer.
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
    /// The function's gate is closed, missing or invalid.
    GateClosed = "gate_closed" "TP001",
    /// An argument is missing or malformed; `detail` says which and how.
    Invalid = "invalid" "TP002",
    /// The value does not fit the config key.
    InvalidValue = "invalid_value" "TP003",
    /// No config key has this name.
    UnknownKey = "unknown_key" "TP004",
    /// The caller has no grant for this.
    NotAuthorised = "not_authorised" "TP005",
    /// The named object does not exist, or no longer exists.
    NotFound = "not_found" "TP006",
    /// Its state does not allow this; `state` or `detail` explains why.
    Conflict = "conflict" "TP007",
    /// Another worker holds the attempt now, or it has ended.
    LeaseLost = "lease_lost" "TP008",
    /// The executor has no enabled subscription, so it cannot claim anything.
    NoSubscription = "no_subscription" "TP009",
    /// The kind is paused.
    Paused = "paused" "TP010",
}

impl Refusal {
    /// Parses a word. An unknown word means that the schema is newer than this binary.
    pub fn from_word(word: &str) -> Option<Refusal> {
        Refusal::ALL.iter().copied().find(|refusal| refusal.word() == word)
    }

    /// Parses an SQLSTATE; only class `TP` is a refusal.
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
