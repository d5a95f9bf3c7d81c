//! Makes tokens for development and for operators, signed with the project's own secret.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use towpath_model::token::{Claims, LIFETIME_SECONDS_MAX, Material, PrivateKey, Scope};

use super::Projects;
use super::record::ChangeError;

/// A token to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mint {
    /// `read`, `write` or `manage`.
    pub scope: String,
    /// How long it is valid.
    pub seconds: u64,
    /// Limited to these streams.
    #[serde(default)]
    pub streams: Vec<String>,
    /// Limited to this session.
    #[serde(default)]
    pub session: Option<String>,
    /// Limited to this job.
    #[serde(default)]
    pub job: Option<String>,
    /// Signed with this key; by default with the newest one that can sign.
    #[serde(default)]
    pub kid: Option<String>,
}

impl Mint {
    /// Its claims.
    pub fn claims(&self, project: &str) -> Result<Claims, ChangeError> {
        let invalid = |text: String| ChangeError::Invalid(text);
        Scope::parse(&self.scope)
            .ok_or_else(|| invalid(format!("unknown scope {}; use read, write or manage", self.scope)))?;
        if self.seconds == 0 || self.seconds > LIFETIME_SECONDS_MAX as u64 {
            return Err(invalid(
                "the lifetime of a token must be between one second and one year".to_owned(),
            ));
        }
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
        Ok(Claims {
            sub: project.to_owned(),
            scope: self.scope.clone(),
            exp: now + self.seconds,
            nbf: None,
            stream_id: (!self.streams.is_empty()).then(|| self.streams.clone().into()),
            session_id: self.session.clone(),
            job_id: self.job.clone(),
        })
    }
}

impl Projects {
    /// Makes a token.
    pub fn mint(&self, project: &str, mint: &Mint) -> Result<String, ChangeError> {
        let found = self.get(project).ok_or_else(|| ChangeError::Unknown(project.to_owned()))?;
        let claims = mint.claims(project)?;
        let mut keys =
            found.record.keys.iter().filter(|key| mint.kid.as_ref().is_none_or(|kid| *kid == key.kid));
        let signing = keys.find_map(|key| match &key.material {
            Material::Hs256 { secret } => Some((key, secret)),
            Material::EdDsa { .. } => None,
        });
        let Some((key, secret)) = signing else {
            return Err(ChangeError::Invalid(format!(
                "no key here can sign for {project}: of an EdDSA key only the public half is kept; \
                 sign with its private half, or add a secret: towpath project rotate {project}"
            )));
        };
        PrivateKey::Hs256(secret).sign(&key.kid, &claims).map_err(|bad| ChangeError::Invalid(bad.to_string()))
    }
}
