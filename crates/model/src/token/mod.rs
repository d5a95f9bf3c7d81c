//! Tokens of projects: JSON Web Tokens that say which project, which right, and until when.
//!
//! `key` holds what a project signs and verifies with, `claims` what a token says, `right`
//! what it may do; `bearer` has the tokens we show to others. Verification is pure: the caller brings the clock and the project's keys.
//! Nothing of a token is believed before its signature was verified with a key of the project
//! in the *path*, by that key's own algorithm; whatever the token's header says only ever
//! makes it fail.

mod bearer;
mod claims;
mod key;
mod right;

pub use bearer::{BadLine, Bearer, TokenList};
pub use claims::{Claims, Invalid, LIFETIME_SECONDS_MAX, Scope};
pub use key::{BadKey, Key, Keyring, Material, PrivateKey, Secret};
pub use right::{Action, Denied, Grant};

#[cfg(test)]
mod tests;
