//! The token matrix (F09): exactly the allowed actions pass.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;
const S1: &str = "0190f5a4-5c2e-7bb0-9f33-000000000001";
const S2: &str = "0190f5a4-5c2e-7bb0-9f33-000000000002";

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn secret(byte: u8) -> Secret {
    Secret::new(vec![byte; 32])
}

fn hs(kid: &str, byte: u8) -> Key {
    Key { kid: kid.into(), material: Material::hs256(secret(byte)).unwrap(), created_at: now() }
}

/// An Ed25519 pair: PKCS#8 and the public half.
fn pair() -> (Vec<u8>, Secret) {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    (pkcs8.as_ref().to_vec(), Secret::new(pair.public_key().as_ref()))
}

fn ed(kid: &str, public: &Secret) -> Key {
    Key { kid: kid.into(), material: Material::eddsa(public.clone()).unwrap(), created_at: now() }
}

fn claims(scope: &str) -> Value {
    json!({ "sub": "shop", "scope": scope, "exp": NOW + 60 })
}

fn b64(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A token of any header and claims, signed with HMAC-SHA-256.
fn forged(header: &Value, claims: &Value, secret: &[u8]) -> String {
    use aws_lc_rs::hmac;
    let message = format!("{}.{}", b64(header), b64(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn hs_token(kid: &str, byte: u8, claims: &Value) -> String {
    forged(&json!({ "alg": "HS256", "kid": kid }), claims, &[byte; 32])
}

fn ring() -> Keyring {
    Keyring::new(&[hs("a", 1), hs("b", 2)])
}

fn verify(token: &str) -> Result<Grant, Invalid> {
    ring().verify(token, "shop", now())
}

#[test]
fn a_good_token_is_taken_with_any_of_several_keys() {
    for (kid, byte) in [("a", 1), ("b", 2)] {
        let grant = verify(&hs_token(kid, byte, &claims("read"))).unwrap();
        assert_eq!(grant.kid, kid);
        assert_eq!(grant.expires_at.as_second(), NOW + 60);
    }
    let unnamed = forged(&json!({ "alg": "HS256" }), &claims("read"), &[2; 32]);
    assert_eq!(verify(&unnamed).unwrap().kid, "b", "without kid every key is tried");
}

#[test]
fn what_this_makes_it_verifies_and_others_do_not() {
    let (pkcs8, public) = pair();
    let ring = Keyring::new(&[hs("a", 1), ed("e", &public)]);
    let said: Claims = serde_json::from_value(claims("write")).unwrap();
    let by_secret = PrivateKey::Hs256(&secret(1)).sign("a", &said).unwrap();
    let by_pair = PrivateKey::EdDsa(&pkcs8).sign("e", &said).unwrap();
    for token in [by_secret, by_pair] {
        assert!(ring.verify(&token, "shop", now()).is_ok());
        assert_eq!(self::ring().verify(&token, "shop", now()).is_ok(), token.contains(&b64_kid("a")));
    }
}

fn b64_kid(kid: &str) -> String {
    let header = jsonwebtoken::Header { kid: Some(kid.to_owned()), ..jsonwebtoken::Header::default() };
    URL_SAFE_NO_PAD.encode(serde_json::to_string(&header).unwrap())
}

#[test]
fn the_algorithm_is_the_keys() {
    let (_, public) = pair();
    let ring = Keyring::new(&[hs("a", 1), ed("e", &public)]);
    let refused =
        |token: &str| assert_eq!(ring.verify(token, "shop", now()), Err(Invalid::Unverified), "{token}");
    let said = claims("manage");
    for alg in ["none", "None", "NONE", "nOnE", "HS384", "HS512", "RS256", "ES256", "EdDSA", "hs256", ""] {
        for kid in [json!("a"), json!("e"), Value::Null] {
            let header = json!({ "alg": alg, "kid": kid });
            refused(&forged(&header, &said, &[1; 32]));
            refused(&format!("{}.{}.", b64(&header), b64(&said)));
        }
    }
    // The classic: the public key used as the secret of an HMAC.
    refused(&forged(&json!({ "alg": "HS256", "kid": "e" }), &said, public.bytes()));
    refused(&forged(&json!({ "alg": "HS256" }), &said, public.bytes()));
    refused(&forged(&json!({ "alg": "HS256", "kid": "a" }), &said, b""));
    // A key in the header is not a key of the project.
    let jwk = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode([9; 32]) });
    refused(&forged(&json!({ "alg": "HS256", "jwk": jwk }), &said, &[9; 32]));
    refused(&forged(&json!({ "alg": "HS256", "kid": "x", "jku": "http://127.0.0.1:1/" }), &said, &[1; 32]));
}

#[test]
fn exp_is_required_and_a_number() {
    let with = |exp: Value| {
        let mut said = claims("read");
        said["exp"] = exp;
        verify(&hs_token("a", 1, &said))
    };
    let soon = NOW + 60;
    for exp in [
        json!(soon.to_string()),
        json!(soon as f64 + 0.5),
        json!(-1),
        json!(i64::MIN),
        Value::Null,
        json!([soon]),
        json!({ "n": soon }),
        json!(true),
    ] {
        assert_eq!(with(exp.clone()), Err(Invalid::Unverified), "{exp}");
    }
    for exp in [0, NOW - 1, NOW] {
        assert_eq!(with(json!(exp)), Err(Invalid::Expired), "{exp}");
    }
    for exp in [u64::MAX, 1 << 63, (NOW + LIFETIME_SECONDS_MAX + 1) as u64] {
        assert_eq!(with(json!(exp)), Err(Invalid::TooLong), "{exp}");
    }
    let mut without = claims("read");
    without.as_object_mut().unwrap().remove("exp");
    assert_eq!(verify(&hs_token("a", 1, &without)), Err(Invalid::Unverified));
    assert!(with(json!(NOW + 1)).is_ok());
    assert!(with(json!(NOW + LIFETIME_SECONDS_MAX)).is_ok());
}

/// F09: a claim of another type, `null` included, makes the token invalid: an unreadable binding must not become an
/// unbound token.
#[test]
fn other_claims_have_their_types_too() {
    let wrong = |claim: &'static str, fits: fn(&Value) -> bool| {
        let shapes = [
            Value::Null,
            json!(true),
            json!(7),
            json!(-1),
            json!(1.5),
            json!("a"),
            json!([]),
            json!(["a"]),
            json!([null]),
            json!(["a", null]),
            json!([1]),
            json!([["a"]]),
            json!({}),
            json!({ "any": true }),
        ];
        shapes.into_iter().filter(move |shape| !fits(shape)).map(move |shape| (claim, shape))
    };
    let is_list = |shape: &Value| shape.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    let all = [
        wrong("sub", Value::is_string).collect::<Vec<_>>(),
        wrong("scope", Value::is_string).collect(),
        wrong("exp", Value::is_u64).collect(),
        wrong("nbf", Value::is_u64).collect(),
        wrong("session_id", Value::is_string).collect(),
        wrong("stream_id", Value::is_string).filter(|(_, it)| !is_list(it)).collect(),
    ];
    for (claim, value) in all.into_iter().flatten() {
        let mut said = claims("manage");
        said[claim] = value;
        assert_eq!(verify(&hs_token("a", 1, &said)), Err(Invalid::Unverified), "{said}");
    }
    let mut early = claims("read");
    early["nbf"] = json!(NOW + 1);
    assert_eq!(verify(&hs_token("a", 1, &early)), Err(Invalid::NotYet));
    assert_eq!(verify(&hs_token("a", 1, &claims("root admin"))), Err(Invalid::Scope));
    assert_eq!(verify(&hs_token("a", 1, &claims(""))), Err(Invalid::Scope));
}

/// A key is looked up in the project of the path.
#[test]
fn the_same_kid_in_two_projects_opens_only_its_own() {
    let (shop, blog) = (Keyring::new(&[hs("a", 1)]), Keyring::new(&[hs("a", 2)]));
    let said = |project: &str| json!({ "sub": project, "scope": "manage", "exp": NOW + 60 });
    for (byte, sub) in [(1, "shop"), (1, "blog"), (2, "shop"), (2, "blog")] {
        let token = hs_token("a", byte, &said(sub));
        assert_eq!(shop.verify(&token, "shop", now()).is_ok(), (byte, sub) == (1, "shop"));
        assert_eq!(blog.verify(&token, "blog", now()).is_ok(), (byte, sub) == (2, "blog"));
    }
    // Even if both share a key, the token names its project.
    assert_eq!(shop.verify(&hs_token("a", 1, &said("shop")), "blog", now()), Err(Invalid::Project));
}

#[test]
fn a_revoked_key_gives_no_access() {
    let token = hs_token("a", 1, &claims("manage"));
    assert_eq!(Keyring::new(&[hs("b", 2)]).verify(&token, "shop", now()), Err(Invalid::Unverified));
    assert_eq!(Keyring::new(&[]).verify(&token, "shop", now()), Err(Invalid::Unverified));
}

#[test]
fn rubbish_is_refused() {
    let good = hs_token("a", 1, &claims("read"));
    let parts: Vec<&str> = good.split('.').collect();
    for token in [
        String::new(),
        ".".into(),
        "..".into(),
        "a.b.c".into(),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}.x"),
        format!("{good}="),
        format!("{}.{}.{}", parts[0], b64(&claims("manage")), parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], &parts[2][1..]),
    ] {
        assert_eq!(verify(&token), Err(Invalid::Unverified), "{token}");
    }
}

/// Right × action × own or foreign session and stream.
#[test]
fn the_matrix_of_rights() {
    let grant = |scope: &str, bound: Value| {
        let mut said = claims(scope);
        said.as_object_mut().unwrap().extend(bound.as_object().unwrap().clone());
        verify(&hs_token("a", 1, &said)).unwrap()
    };
    let (own, foreign) = (format!("session:{S1}"), format!("session:{S2}"));
    let subscribe = |session, stream| Action::Subscribe { session, stream };
    let unsubscribe = |session, stream| Action::Unsubscribe { session, stream };
    // The action, the scope it needs, and which tokens allow it: unbound, bound to session 1, bound to stream x,
    // bound to both.
    let rows = [
        (Action::Read("x"), "read", [true, false, true, true]),
        (Action::Read("y"), "read", [true, false, false, false]),
        (Action::Read(&own), "read", [true, true, false, true]),
        (Action::Read(&foreign), "read", [true, false, false, false]),
        (Action::Write("x"), "write", [true, false, true, true]),
        (Action::Write("y"), "write", [true, false, false, false]),
        (Action::Write(&own), "write", [true, true, false, true]),
        (Action::Write(&foreign), "write", [true, false, false, false]),
        (subscribe(S1, "x"), "read", [true, true, false, true]),
        (subscribe(S1, "y"), "read", [true, true, false, false]),
        (subscribe(S2, "x"), "read", [true, false, false, false]),
        (subscribe(S2, "y"), "read", [true, false, false, false]),
        (unsubscribe(S1, "x"), "write", [true, true, false, true]),
        (unsubscribe(S1, "y"), "write", [true, true, false, false]),
        (unsubscribe(S2, "x"), "write", [true, false, false, false]),
        (Action::GetSession(S1), "read", [true, true, false, true]),
        (Action::GetSession(S2), "read", [true, false, false, false]),
        (Action::TouchSession(S1), "read", [true, true, false, true]),
        (Action::TouchSession(S2), "read", [true, false, false, false]),
        (Action::DeleteSession(S1), "write", [true, true, false, true]),
        (Action::DeleteSession(S2), "write", [true, false, false, false]),
        (Action::List, "read", [true, false, false, false]),
        (Action::Work, "write", [true, false, false, false]),
        (Action::Manage, "manage", [true, false, false, false]),
    ];
    let bounds = [
        json!({}),
        json!({ "session_id": S1 }),
        json!({ "stream_id": "x" }),
        json!({ "session_id": S1, "stream_id": ["x", "z"] }),
    ];
    let scopes = ["read", "write", "manage"];
    for (action, needs, reached) in rows {
        for (bound, reached) in bounds.iter().zip(reached) {
            for scope in scopes {
                let enough = Scope::parse(scope) >= Scope::parse(needs);
                let allowed = grant(scope, bound.clone()).allows(action).is_ok();
                assert_eq!(allowed, enough && reached, "{scope} {bound} {action:?}");
            }
        }
    }
}

#[test]
fn weak_keys_are_refused_and_none_is_shown() {
    assert_eq!(Material::hs256(Secret::new([1; 31])), Err(BadKey::Short));
    assert_eq!(Material::eddsa(Secret::new([1; 31])), Err(BadKey::Kind));
    let key = hs("a", 1);
    assert!(!format!("{key:?}").contains(&secret(1).reveal()));
    let text = serde_json::to_string(&key).unwrap();
    assert_eq!(serde_json::from_str::<Key>(&text).unwrap(), key);
}

proptest! {
    /// Any change makes a valid token invalid.
    #[test]
    fn a_changed_token_fails(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let good = hs_token("a", 1, &claims("read"));
        let mut changed = good.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        if let Ok(changed) = String::from_utf8(changed) {
            prop_assert_eq!(verify(&changed).is_ok(), changed == good);
        }
    }

    #[test]
    fn any_text_is_survived(text in ".{0,200}") {
        prop_assert!(verify(&text).is_err());
    }
}
