//! Signatures of Standard Webhooks: HMAC-SHA256 over id, time and body, one per key.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Keys may have padding or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The value of `webhook-signature`. A receiver accepts one valid signature, so during a rotation both keys sign.
pub(super) fn signature(keys: &[String], id: &str, second: i64, body: &str) -> Result<String, String> {
    if keys.is_empty() {
        return Err("the route has no signing key; create one with: towpath routes rotate".to_owned());
    }
    let signed = format!("{id}.{second}.{body}");
    let one = |key: &String| {
        let text = key.strip_prefix("whsec_").unwrap_or(key);
        let bytes = BASE64.decode(text).map_err(|_| "the route's signing key is not base64".to_owned())?;
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes), signed.as_bytes());
        Ok(format!("v1,{}", BASE64.encode(tag)))
    };
    Ok(keys.iter().map(one).collect::<Result<Vec<_>, String>>()?.join(" "))
}

#[cfg(test)]
mod tests {
    use super::signature;

    /// The example of the specification.
    #[test]
    fn the_published_example_comes_out() {
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        let made =
            signature(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(made.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn no_key_is_a_mistake_that_is_named() {
        assert!(signature(&[], "a", 1, "b").unwrap_err().contains("no signing key"));
        assert!(signature(&["whsec_?".to_owned()], "a", 1, "b").unwrap_err().contains("base64"));
    }
}
