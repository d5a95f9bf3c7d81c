//! The stored record of a project, and its changes.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towpath_model::session::{self, Invalid};
use towpath_model::token::{Key, Material, Secret};
use towpath_streams::Error;

/// Keys of one project: a rotation needs two, a careful one a few more.
const KEYS_MAX: usize = 16;
/// Origins of one project; each request with an origin is compared with all of them.
const ORIGINS_MAX: usize = 64;

/// One registered project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When it was registered.
    pub created_at: Timestamp,
    /// Newest first: the first one signs.
    pub keys: Vec<Key>,
    /// Origins whose pages may read and write with a token; `*` is any.
    pub origins: Vec<String>,
    /// The secret from which reader keys are derived.
    pub reader_secret: Secret,
}

impl Record {
    /// Its public fields.
    pub fn describe(&self, name: &str) -> Value {
        let keys: Vec<Value> = self
            .keys
            .iter()
            .map(|key| json!({ "kid": key.kid, "alg": key.material.algorithm(), "created_at": key.created_at }))
            .collect();
        json!({ "project": name, "created_at": self.created_at, "keys": keys, "origins": self.origins })
    }
}

/// One change of the registry.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Registers it.
    Add {
        /// Its first key.
        key: NewKey,
        /// Its origins.
        origins: Vec<String>,
    },
    /// Adds a key, which signs from now on; the others still verify.
    AddKey {
        /// The key.
        key: NewKey,
    },
    /// Revokes a key: its tokens end at once.
    Revoke {
        /// Which one.
        kid: String,
    },
    /// Replaces the origins.
    Origins {
        /// The new list.
        origins: Vec<String>,
    },
    /// Makes new reader keys, which invalidates cached pages.
    ReaderKey,
    /// Removes the registration. The streams stay.
    Remove,
}

/// A key to add.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewKey {
    /// Its name.
    pub kid: String,
    /// What verifies signatures.
    #[serde(flatten)]
    pub material: Material,
}

/// Why the registry did not change.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The project is registered already.
    #[error("project {0} is registered already; see: towpath project keys {0}")]
    Exists(String),
    /// The project is not registered.
    #[error("project {0} is not registered; see: towpath project list")]
    Unknown(String),
    /// The project has no such key.
    #[error("project {project} has no key {kid}; see: towpath project keys {project}")]
    UnknownKey {
        /// The project.
        project: String,
        /// The key.
        kid: String,
    },
    /// The change is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The store failed.
    #[error(transparent)]
    Store(Error),
}

/// 32 random bytes.
pub fn random_secret() -> Secret {
    let mut bytes = vec![0; 32];
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    Secret::new(bytes)
}

/// A new Ed25519 pair: the private key in PKCS#8, and the public key for the project.
pub fn new_pair() -> (Secret, Material) {
    let why = "the operating system gives random bytes";
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect(why);
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("what was just made is a key");
    let public = Secret::new(pair.public_key().as_ref());
    (Secret::new(pkcs8.as_ref()), Material::EdDsa { public })
}

/// The project after a change; `None` is not registered.
pub(super) fn apply(
    name: &str,
    before: Option<Record>,
    change: Change,
) -> Result<Option<Record>, ChangeError> {
    let unknown = || ChangeError::Unknown(name.to_owned());
    match change {
        Change::Add { key, origins } => {
            if before.is_some() {
                return Err(ChangeError::Exists(name.to_owned()));
            }
            session::check_project(name).map_err(|why: Invalid| ChangeError::Invalid(why.detail().into()))?;
            check_origins(&origins)?;
            let now = Timestamp::now();
            let keys = vec![stamped(key, &[], now)?];
            Ok(Some(Record { created_at: now, keys, origins, reader_secret: random_secret() }))
        }
        Change::AddKey { key } => {
            let mut record = before.ok_or_else(unknown)?;
            let key = stamped(key, &record.keys, Timestamp::now())?;
            record.keys.insert(0, key);
            Ok(Some(record))
        }
        Change::Revoke { kid } => {
            let mut record = before.ok_or_else(unknown)?;
            let count = record.keys.len();
            record.keys.retain(|key| key.kid != kid);
            match record.keys.len() == count {
                true => Err(ChangeError::UnknownKey { project: name.to_owned(), kid }),
                false => Ok(Some(record)),
            }
        }
        Change::Origins { origins } => {
            check_origins(&origins)?;
            Ok(Some(Record { origins, ..before.ok_or_else(unknown)? }))
        }
        Change::ReaderKey => {
            Ok(Some(Record { reader_secret: random_secret(), ..before.ok_or_else(unknown)? }))
        }
        Change::Remove => before.map(|_| None).ok_or_else(unknown),
    }
}

fn stamped(key: NewKey, others: &[Key], now: Timestamp) -> Result<Key, ChangeError> {
    let NewKey { kid, material } = key;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let invalid = |text: String| Err(ChangeError::Invalid(text));
    if kid.is_empty() || kid.len() > 64 || !kid.bytes().all(letter) {
        return invalid("a key id may have letters, digits, -, _ and ., at most 64".to_owned());
    }
    if others.iter().any(|other| other.kid == kid) {
        return invalid(format!("key {kid} already exists; choose another id"));
    }
    if others.len() >= KEYS_MAX {
        return invalid(format!("a project can have at most {KEYS_MAX} keys; revoke one first"));
    }
    // Checked again, because it may come from a request.
    let material = match material {
        Material::Hs256 { secret } => Material::hs256(secret),
        Material::EdDsa { public } => Material::eddsa(public),
    };
    let material = material.map_err(|bad| ChangeError::Invalid(format!("the key cannot be used: {bad}")))?;
    Ok(Key { kid, material, created_at: now })
}

/// `*`, or scheme and host without a path, as browsers send them.
fn check_origins(origins: &[String]) -> Result<(), ChangeError> {
    if origins.len() > ORIGINS_MAX {
        return Err(ChangeError::Invalid(format!("a project can have at most {ORIGINS_MAX} origins")));
    }
    for origin in origins {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        let plain = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'*')
        };
        if origin != "*" && !host.is_some_and(plain) {
            let text =
                format!("{origin} is not an origin; an example is https://app.example.com, without a path");
            return Err(ChangeError::Invalid(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kid: &str) -> NewKey {
        NewKey { kid: kid.into(), material: Material::hs256(random_secret()).unwrap() }
    }

    fn added() -> Option<Record> {
        apply("shop", None, Change::Add { key: key("a"), origins: vec![] }).unwrap()
    }

    /// F09: keys are rotated by adding one and, later, revoking the other.
    #[test]
    fn keys_rotate() {
        let rotated = apply("shop", added(), Change::AddKey { key: key("b") }).unwrap();
        let kids = |record: &Option<Record>| -> Vec<String> {
            record.as_ref().unwrap().keys.iter().map(|key| key.kid.clone()).collect()
        };
        assert_eq!(kids(&rotated), ["b", "a"], "the newest signs");
        let revoked = apply("shop", rotated, Change::Revoke { kid: "a".into() }).unwrap();
        assert_eq!(kids(&revoked), ["b"]);
        let none = apply("shop", revoked, Change::Revoke { kid: "b".into() }).unwrap();
        assert!(none.is_some(), "without a key it stays registered, and closed");
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |before, change| apply("shop", before, change).unwrap_err().to_string();
        assert!(refused(None, Change::Remove).contains("not registered"));
        assert!(refused(added(), Change::Add { key: key("b"), origins: vec![] }).contains("already"));
        assert!(refused(added(), Change::AddKey { key: key("a") }).contains("already"));
        assert!(refused(added(), Change::AddKey { key: key("a b") }).contains("letters"));
        assert!(refused(added(), Change::Revoke { kid: "x".into() }).contains("no key x"));
        let weak = NewKey { kid: "w".into(), material: Material::Hs256 { secret: Secret::new([1; 8]) } };
        assert!(refused(added(), Change::AddKey { key: weak }).contains("32 bytes"));
        for origin in ["app.example.com", "https://", "https://a/b", "https://*.a", "ftp://a"] {
            let change = Change::Origins { origins: vec![origin.into()] };
            assert!(refused(added(), change).contains("not an origin"), "{origin}");
        }
        let fine = Change::Origins { origins: vec!["*".into(), "http://localhost:3000".into()] };
        assert!(apply("shop", added(), fine).is_ok());
    }
}
