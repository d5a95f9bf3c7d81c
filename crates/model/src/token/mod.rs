//! Tokens of projects: JSON Web Tokens with a project, a scope and an expiry.
//!
//! `key` has the project's keys, `claims` what a token contains, `right` what it allows; `bearer` has the tokens
//! that we send to other servers. Verification is pure: the caller passes the clock and the project's keys.
//! Nothing in a token is trusted before its signature is verified with a key of the project in the *path*, by that
//! key's own algorithm; the token's header can only make it fail.

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
