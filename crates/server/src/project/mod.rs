//! Projects and their tokens.
//!
//! Requests to a registered project need a token signed by one of its keys. A project that is not registered is
//! open to all clients, so the server must listen on loopback only ([`Auth::Local`]); on a public address it
//! is closed ([`Auth::Required`]).
//!
//! The registry is in the store. Every change is durable and in effect when it is answered: open connections
//! whose key was revoked end.

mod admin;
mod mint;
mod pass;
mod record;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;
use towpath_model::job::JobId;
use towpath_model::token::{Grant, Invalid, Keyring};
use towpath_streams::{Error, Store};

use crate::limits::VERIFIED_TOKENS_MAX;
pub(crate) use admin::router;
pub use mint::Mint;
pub(crate) use pass::{Keeping, Origins, Pass};
use record::apply;
pub use record::{Change, ChangeError, NewKey, Record, new_pair, random_secret};

/// The project of the streams of jobs. The server registers it itself.
pub(crate) const JOBS_PROJECT: &str = "jobs";

/// The namespace of the registry among the store's small values.
const NAMESPACE: &str = "project";

/// Which projects need a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auth {
    /// Registered projects; others are open.
    #[default]
    Local,
    /// All projects.
    Required,
}

/// All registered projects. Cheap to clone.
#[derive(Clone)]
pub struct Projects(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    all: RwLock<HashMap<String, Arc<Project>>>,
    /// Held while the registry changes, so that changes do not overlap.
    changing: tokio::sync::Mutex<()>,
    /// Counts changes, for connections that end when their key is revoked.
    changes: watch::Sender<u64>,
}

/// One project, ready to verify tokens.
pub(crate) struct Project {
    pub(crate) record: Record,
    pub(crate) ring: Keyring,
    /// The grants of verified tokens. A change of the keys makes a new `Project` with none.
    verified: Mutex<HashMap<Box<str>, Arc<Grant>>>,
}

impl Projects {
    /// Reads the registry of a store.
    pub fn open(store: Arc<dyn Store>) -> Result<Projects, Error> {
        let mut all = HashMap::new();
        for (name, value) in store.list_meta(NAMESPACE) {
            let record: Record = serde_json::from_slice(&value)
                .map_err(|error| Error::Corrupt(format!("the record of project {name}: {error}")))?;
            all.insert(name, Project::new(record));
        }
        let changes = watch::Sender::new(0);
        Ok(Projects(Arc::new(Inner {
            store,
            all: RwLock::new(all),
            changing: tokio::sync::Mutex::default(),
            changes,
        })))
    }

    /// The registered projects by name.
    pub fn list(&self) -> Vec<(String, Record)> {
        let all = self.0.all.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> =
            all.iter().map(|(name, project)| (name.clone(), project.record.clone())).collect();
        list.sort_by(|one, other| one.0.cmp(&other.0));
        list
    }

    /// Whether any project has a key, besides the server's own.
    pub fn any_key(&self) -> bool {
        let all = self.0.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|(name, project)| name != JOBS_PROJECT && !project.record.keys.is_empty())
    }

    /// The job that a token is for, if it is for one.
    pub(crate) fn job_of(&self, token: &str) -> Result<Option<JobId>, Invalid> {
        let Some(project) = self.get(JOBS_PROJECT) else { return Ok(None) };
        let grant = project.grant(token, JOBS_PROJECT, Timestamp::now())?;
        Ok(grant.job.as_deref().and_then(|job_id| job_id.parse().ok()))
    }

    /// Makes one change durably, and answers the new state.
    pub async fn change(&self, name: &str, change: Change) -> Result<Option<Record>, ChangeError> {
        let _one_at_a_time = self.0.changing.lock().await;
        let before = self.get(name).map(|project| project.record.clone());
        let after = apply(name, before, change)?;
        let value = after
            .as_ref()
            .map(|record| Bytes::from(serde_json::to_vec(record).expect("our own types serialise")));
        self.0.store.put_meta(NAMESPACE, name, value).await.map_err(ChangeError::Store)?;
        let mut all = self.0.all.write().unwrap_or_else(PoisonError::into_inner);
        match &after {
            Some(record) => all.insert(name.to_owned(), Project::new(record.clone())),
            None => all.remove(name),
        };
        drop(all);
        self.0.changes.send_modify(|changes| *changes += 1);
        Ok(after)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Project>> {
        self.0.all.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl Project {
    fn new(record: Record) -> Arc<Project> {
        let ring = Keyring::new(&record.keys);
        Arc::new(Project { record, ring, verified: Mutex::default() })
    }

    /// Verifies a token, or finds it among those verified before.
    fn grant(&self, token: &str, name: &str, now: Timestamp) -> Result<Arc<Grant>, Invalid> {
        let verified = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(grant) = verified().get(token).filter(|grant| grant.expires_at > now) {
            return Ok(grant.clone());
        }
        let grant = Arc::new(self.ring.verify(token, name, now)?);
        let mut verified = verified();
        if verified.len() >= VERIFIED_TOKENS_MAX {
            verified.clear();
        }
        verified.insert(token.into(), grant.clone());
        Ok(grant)
    }
}

#[cfg(test)]
mod tests {
    use towpath_model::token::{Claims, Key, Material, PrivateKey};

    use super::*;

    /// F09: a token that was verified before ends when its time is up.
    #[test]
    fn a_remembered_token_expires() {
        let secret = random_secret();
        let now = Timestamp::now();
        let key =
            Key { kid: "a".into(), material: Material::hs256(secret.clone()).unwrap(), created_at: now };
        let project = Project::new(Record {
            created_at: now,
            keys: vec![key],
            origins: vec![],
            reader_secret: random_secret(),
        });
        let exp = u64::try_from(now.as_second()).unwrap() + 60;
        let claims = serde_json::json!({ "sub": "shop", "scope": "write", "exp": exp });
        let claims: Claims = serde_json::from_value(claims).unwrap();
        let token = PrivateKey::Hs256(&secret).sign("a", &claims).unwrap();
        let at = |seconds: i64| project.grant(&token, "shop", Timestamp::from_second(seconds).unwrap());
        let end = i64::try_from(exp).unwrap();
        assert!(Arc::ptr_eq(&at(end - 60).unwrap(), &at(end - 1).unwrap()), "it is remembered");
        assert_eq!(at(end).unwrap_err(), Invalid::Expired);
        assert_eq!(at(end + 1).unwrap_err(), Invalid::Expired);
    }
}
