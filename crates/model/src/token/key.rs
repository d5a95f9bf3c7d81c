//! A project's keys.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use super::claims::{Claims, Invalid};
use super::right::Grant;

/// An HMAC secret shorter than its hash weakens it.
const SECRET_BYTES_MIN: usize = 32;
const ED25519_BYTES: usize = 32;

/// Bytes that are never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Secret(Vec<u8>);

/// One key of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its name in a token's header; unique in the project.
    pub kid: String,
    /// What it verifies with, which also determines the algorithm.
    #[serde(flatten)]
    pub material: Material,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The algorithm belongs to the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "alg")]
pub enum Material {
    /// A shared secret: it verifies and signs.
    #[serde(rename = "HS256")]
    Hs256 {
        /// 32 bytes or more.
        secret: Secret,
    },
    /// Ed25519: Towpath stores only the public key.
    #[serde(rename = "EdDSA")]
    EdDsa {
        /// 32 bytes.
        public: Secret,
    },
}

/// Why a key is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadKey {
    /// Not base64.
    Encoding,
    /// Too short to be a secret.
    Short,
    /// Not a key of this kind.
    Kind,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadKey::Encoding => "not base64",
            BadKey::Short => "a secret needs 32 bytes or more",
            BadKey::Kind => "not an Ed25519 key",
        })
    }
}

impl std::error::Error for BadKey {}

impl Secret {
    /// Wraps bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }

    /// Parses base64, with or without padding, in either alphabet.
    pub fn parse(text: &str) -> Result<Secret, BadKey> {
        let plain = text.trim().trim_end_matches('=').replace('+', "-").replace('/', "_");
        URL_SAFE_NO_PAD.decode(plain).map(Secret).map_err(|_| BadKey::Encoding)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text, to show it once.
    pub fn reveal(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> String {
        secret.reveal()
    }
}

impl TryFrom<String> for Secret {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Secret, BadKey> {
        Secret::parse(&text)
    }
}

impl Material {
    /// A shared secret, if it is long enough.
    pub fn hs256(secret: Secret) -> Result<Material, BadKey> {
        match secret.0.len() >= SECRET_BYTES_MIN {
            true => Ok(Material::Hs256 { secret }),
            false => Err(BadKey::Short),
        }
    }

    /// An Ed25519 public key.
    pub fn eddsa(public: Secret) -> Result<Material, BadKey> {
        match public.0.len() == ED25519_BYTES {
            true => Ok(Material::EdDsa { public }),
            false => Err(BadKey::Kind),
        }
    }

    /// The name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self {
            Material::Hs256 { .. } => "HS256",
            Material::EdDsa { .. } => "EdDSA",
        }
    }
}

/// What signs tokens.
pub enum PrivateKey<'a> {
    /// The shared secret.
    Hs256(&'a Secret),
    /// An Ed25519 key in PKCS#8.
    EdDsa(&'a [u8]),
}

impl PrivateKey<'_> {
    /// Signs a token.
    pub fn sign(&self, kid: &str, claims: &Claims) -> Result<String, BadKey> {
        let (algorithm, key) = match self {
            PrivateKey::Hs256(secret) => (Algorithm::HS256, EncodingKey::from_secret(secret.bytes())),
            PrivateKey::EdDsa(pkcs8) => (Algorithm::EdDSA, EncodingKey::from_ed_der(pkcs8)),
        };
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) };
        jsonwebtoken::encode(&header, claims, &key).map_err(|_| BadKey::Kind)
    }
}

/// All keys of one project, ready to verify.
#[derive(Default)]
pub struct Keyring(Vec<Verifier>);

struct Verifier {
    kid: String,
    key: DecodingKey,
    validation: Validation,
}

impl Keyring {
    /// Prepares a project's keys.
    pub fn new(keys: &[Key]) -> Keyring {
        Keyring(keys.iter().map(Verifier::new).collect())
    }

    /// Whether there is a key with this id.
    pub fn holds(&self, kid: &str) -> bool {
        self.0.iter().any(|verifier| verifier.kid == kid)
    }

    /// Verifies a token for a project: with the key it names, or with each key if it names none.
    pub fn verify(&self, token: &str, project: &str, now: Timestamp) -> Result<Grant, Invalid> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| Invalid::Unverified)?;
        let candidates =
            self.0.iter().filter(|verifier| header.kid.as_ref().is_none_or(|kid| *kid == verifier.kid));
        for verifier in candidates {
            if let Ok(data) = jsonwebtoken::decode::<Claims>(token, &verifier.key, &verifier.validation) {
                let scope = data.claims.check(project, now)?;
                return Ok(Grant::new(scope, data.claims, verifier.kid.clone()));
            }
        }
        Err(Invalid::Unverified)
    }
}

impl Verifier {
    fn new(key: &Key) -> Verifier {
        let (algorithm, decoding) = match &key.material {
            Material::Hs256 { secret } => (Algorithm::HS256, DecodingKey::from_secret(secret.bytes())),
            Material::EdDsa { public } => (Algorithm::EdDSA, DecodingKey::from_ed_der(public.bytes())),
        };
        let mut validation = Validation::new(algorithm);
        // The claims are checked here, by the caller's clock.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        Verifier { kid: key.kid.clone(), key: decoding, validation }
    }
}
