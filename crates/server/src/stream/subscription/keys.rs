//! The keys of the subscription API: one signs webhooks, one makes the tokens of wakes.
//!
//! They are made once and kept in a stream of the store, so that tokens and signatures
//! stay valid when the server restarts or another one takes over.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towpath_model::stream::name::{DEFAULT_PROJECT, StreamName};
use towpath_model::stream::offset::Start;
use towpath_model::stream::state::Shape;
use towpath_streams::{Create, Error, Messages, Retention, Store};

/// How long a token is valid: far longer than the longest lease.
const TOKEN_SECONDS: i64 = 3600;

pub(super) struct Keys {
    signing: Ed25519KeyPair,
    id: String,
    tokens: hmac::Key,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct Stored {
    ed25519_seed: String,
    token_key: String,
}

/// The claims of a token.
#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    generation: u64,
    exp: i64,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadToken {
    Invalid,
    Expired,
}

impl Keys {
    /// Reads the keys, or makes them. A server that comes second reads those of the first.
    pub(super) async fn open(store: &dyn Store) -> Result<Keys, Error> {
        let name = StreamName::reserved(DEFAULT_PROJECT, "keys").expect("a constant name is a name");
        let fresh = Stored { ed25519_seed: random(32), token_key: random(32) };
        let text = serde_json::to_vec(&fresh).expect("our own types serialise");
        let shape = Shape { content_type: None, expiry: None, closed: false, fork: None };
        let create = Create { shape, messages: Messages::one(text), retention: Retention::default() };
        store.create(name.clone(), create).await?;
        let page = store.read(&name, Start::Beginning, usize::MAX).await?;
        let unreadable = || Error::Corrupt("cannot read the keys of the subscription API".to_owned());
        let stored: Stored = serde_json::from_slice(page.batch.data()).map_err(|_| unreadable())?;
        Keys::new(&stored).ok_or_else(unreadable)
    }

    fn new(stored: &Stored) -> Option<Keys> {
        let signing = Ed25519KeyPair::from_seed_unchecked(&decode(&stored.ed25519_seed)?).ok()?;
        let tokens = hmac::Key::new(hmac::HMAC_SHA256, &decode(&stored.token_key)?);
        // The thumbprint of the public key, as in RFC 7638.
        let public = encode(signing.public_key());
        let thumbprint = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{public}"}}"#);
        let id = format!("ds_{}", encode(digest(&SHA256, thumbprint.as_bytes())));
        Some(Keys { signing, id, tokens })
    }

    /// The name of the key that signs.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The public key, with which receivers verify signatures.
    pub(super) fn public(&self) -> Value {
        let x = encode(self.signing.public_key());
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.id, "use": "sig", "alg": "EdDSA" }] })
    }

    /// The signature header of a webhook.
    pub(super) fn sign(&self, body: &str, now: Timestamp) -> String {
        let second = now.as_second();
        let signature = self.signing.sign(format!("{second}.{body}").as_bytes());
        format!("t={second},kid={},ed25519={}", self.id, encode(signature))
    }

    /// A token for one generation of one subscription.
    pub(super) fn token(&self, subject: &str, generation: u64, now: Timestamp) -> String {
        let claims = Claims { sub: subject.to_owned(), generation, exp: now.as_second() + TOKEN_SECONDS };
        let claims = encode(serde_json::to_vec(&claims).expect("our own types serialise"));
        let tag = encode(hmac::sign(&self.tokens, claims.as_bytes()));
        format!("{claims}.{tag}")
    }

    /// The generation a token was made for.
    pub(super) fn verify(&self, token: &str, subject: &str, now: Timestamp) -> Result<u64, BadToken> {
        let (claims, tag) = token.split_once('.').ok_or(BadToken::Invalid)?;
        let tag = decode(tag).ok_or(BadToken::Invalid)?;
        hmac::verify(&self.tokens, claims.as_bytes(), &tag).map_err(|_| BadToken::Invalid)?;
        let claims = decode(claims).ok_or(BadToken::Invalid)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| BadToken::Invalid)?;
        match claims.sub == subject {
            false => Err(BadToken::Invalid),
            true if claims.exp < now.as_second() => Err(BadToken::Expired),
            true => Ok(claims.generation),
        }
    }
}

/// Random bytes as text.
pub(super) fn random(bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    SystemRandom::new().fill(&mut buffer).expect("the system has random numbers");
    encode(buffer)
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    fn keys() -> Keys {
        Keys::new(&Stored { ed25519_seed: random(32), token_key: random(32) }).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_subject_and_its_time() {
        let (keys, now) = (keys(), Timestamp::now());
        let token = keys.token("a", 7, now);
        assert_eq!(keys.verify(&token, "a", now), Ok(7));
        assert_eq!(keys.verify(&token, "b", now), Err(BadToken::Invalid));
        let later = now + jiff::SignedDuration::from_hours(2);
        assert_eq!(keys.verify(&token, "a", later), Err(BadToken::Expired));
        assert_eq!(self::keys().verify(&token, "a", now), Err(BadToken::Invalid), "another server's key");
        assert_eq!(keys.verify("x", "a", now), Err(BadToken::Invalid));
    }

    #[test]
    fn the_published_key_verifies_signatures() {
        let keys = keys();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let header = keys.sign("{}", now);
        let (rest, signature) = header.rsplit_once(",ed25519=").unwrap();
        assert_eq!(rest, format!("t=1800000000,kid={}", keys.id()));
        let public = decode(keys.public()["keys"][0]["x"].as_str().unwrap()).unwrap();
        let public = UnparsedPublicKey::new(&ED25519, public);
        public.verify(b"1800000000.{}", &decode(signature).unwrap()).unwrap();
        assert!(public.verify(b"1800000001.{}", &decode(signature).unwrap()).is_err());
    }
}
