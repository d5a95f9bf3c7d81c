//! Stored payloads: their references and their encryption (docs/decisions/0014).
//!
//! A payload is encrypted with its project's data key; the data key is stored wrapped by a master key, which is
//! never in the database. Both use AES-256-GCM with a random nonce: nonce, ciphertext, tag.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

const KEY_BYTES: usize = 32;
const PREFIX: &str = "payload:";

/// The largest payload, in bytes; the database refuses larger ones too.
pub const BYTES_MAX: usize = 16 << 20;

/// The name of a stored payload: `payload:` and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadRef(Uuid);

impl PayloadRef {
    /// The payload with this id.
    pub fn new(id: Uuid) -> PayloadRef {
        PayloadRef(id)
    }

    /// The payload that a job's result became, if it is a reference to one: `{"payload_ref": …}` and nothing else.
    pub fn of_result(result: &serde_json::Value) -> Option<PayloadRef> {
        let fields = result.as_object().filter(|fields| fields.len() == 1)?;
        fields.get("payload_ref")?.as_str()?.parse().ok()
    }
}

impl fmt::Display for PayloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

impl FromStr for PayloadRef {
    type Err = String;

    fn from_str(text: &str) -> Result<PayloadRef, String> {
        let id = text.strip_prefix(PREFIX).and_then(|id| id.parse().ok()).map(PayloadRef);
        // One spelling only: the database compares references as text.
        id.filter(|id| id.to_string() == text).ok_or_else(|| {
            format!("invalid payload reference {text:?}; expected a form such as payload:0190f5a4-5c2e-7bb0-9f33-0123456789ab")
        })
    }
}

/// Why a payload cannot be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// No master key unwraps the key of this project.
    Key,
    /// The key is right, but the data was changed.
    Data,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unreadable::Key => "no master key in payload_master_key_file can unwrap its project's key",
            Unreadable::Data => "its row was changed after it was stored",
        })
    }
}

/// The master keys: the first one wraps new keys, all of them can unwrap.
pub struct MasterKeys(Vec<[u8; KEY_BYTES]>);

impl MasterKeys {
    /// Reads one key per line, 32 bytes in base64; the newest first.
    pub fn parse(text: &str) -> Result<MasterKeys, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys: Option<Vec<_>> =
            lines.map(|line| STANDARD.decode(line).ok().and_then(|key| key.try_into().ok())).collect();
        keys.filter(|keys| !keys.is_empty()).map(MasterKeys).ok_or_else(|| {
            "expected one master key per line, 32 bytes in base64; generate one with: head -c 32 /dev/urandom | base64".into()
        })
    }

    /// A new data key for a project, wrapped.
    pub fn new_key(&self, project: &str) -> Vec<u8> {
        let mut key = [0; KEY_BYTES];
        aws_lc_rs::rand::fill(&mut key).expect("the machine has random bytes");
        seal(&self.0[0], &about_key(project), &key)
    }

    /// The data key inside a wrapped one.
    pub fn unwrap(&self, project: &str, wrapped: &[u8]) -> Result<DataKey, Unreadable> {
        let opened = self.0.iter().find_map(|master| open(master, &about_key(project), wrapped));
        opened.and_then(|key| key.try_into().ok()).map(DataKey).ok_or(Unreadable::Key)
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} master keys", self.0.len())
    }
}

/// The key that encrypts the payloads of one project.
pub struct DataKey([u8; KEY_BYTES]);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(…)")
    }
}

/// Additional authenticated data, so that the ciphertext is valid for this row only.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the columns of towpath.payload")]
pub struct About<'a> {
    pub payload_ref: PayloadRef,
    pub project: &'a str,
    pub content_type: &'a str,
}

impl About<'_> {
    /// No field can contain a line break, so no two payloads have the same text.
    fn words(&self) -> String {
        format!("towpath payload\n{}\n{}\n{}", self.payload_ref, self.project, self.content_type)
    }
}

impl DataKey {
    /// Encrypts.
    pub fn seal(&self, about: About<'_>, data: &[u8]) -> Vec<u8> {
        seal(&self.0, &about.words(), data)
    }

    /// Decrypts what was sealed about the same payload.
    pub fn open(&self, about: About<'_>, sealed: &[u8]) -> Result<Vec<u8>, Unreadable> {
        open(&self.0, &about.words(), sealed).ok_or(Unreadable::Data)
    }
}

fn about_key(project: &str) -> String {
    format!("towpath payload key\n{project}")
}

fn cipher(key: &[u8; KEY_BYTES]) -> RandomizedNonceKey {
    RandomizedNonceKey::new(&AES_256_GCM, key).expect("the key has the cipher's length")
}

fn seal(key: &[u8; KEY_BYTES], about: &str, data: &[u8]) -> Vec<u8> {
    let mut sealed = data.to_vec();
    let nonce = cipher(key)
        .seal_in_place_append_tag(Aad::from(about), &mut sealed)
        .expect("16 MiB are not too much for GCM");
    [nonce.as_ref().as_slice(), &sealed].concat()
}

fn open(key: &[u8; KEY_BYTES], about: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, data) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut data = data.to_vec();
    let length = cipher(key).open_in_place(nonce, Aad::from(about), &mut data).ok()?.len();
    data.truncate(length);
    Some(data)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "payload:0190f5a4-5c2e-7bb0-9f33-0123456789ab";

    fn keys(seeds: &[u8]) -> MasterKeys {
        let lines: Vec<_> = seeds.iter().map(|seed| STANDARD.encode([*seed; KEY_BYTES])).collect();
        MasterKeys::parse(&lines.join("\n")).unwrap()
    }

    fn about<'a>(project: &'a str, content_type: &'a str) -> About<'a> {
        About { payload_ref: NAME.parse().unwrap(), project, content_type }
    }

    #[test]
    fn a_reference_has_one_spelling() {
        assert_eq!(NAME.parse::<PayloadRef>().unwrap().to_string(), NAME);
        for other in [
            "",
            "payload:",
            "payload:7",
            &NAME.to_uppercase(),
            &NAME[8..],
            "event:0190f5a4-5c2e-7bb0-9f33-0123456789ab",
        ] {
            assert!(other.parse::<PayloadRef>().is_err(), "{other}");
        }
    }

    #[test]
    fn master_keys_are_lines_of_32_bytes() {
        for bad in [
            "",
            "\n",
            "AAAA",
            "no base64",
            &STANDARD.encode([0; 31]),
            &format!("{}\nx", STANDARD.encode([0; 32])),
        ] {
            assert!(MasterKeys::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(format!("{:?}", keys(&[1, 2])), "2 master keys");
    }

    /// Q25: the wrong master key unwraps nothing; an old one that is still in the file does.
    #[test]
    fn only_a_master_key_of_the_file_unwraps() {
        let wrapped = keys(&[1]).new_key("acme");
        assert_eq!(wrapped.len(), 60, "what the database expects of a wrapped key");
        assert!(keys(&[2, 1]).unwrap("acme", &wrapped).is_ok());
        assert_eq!(keys(&[2]).unwrap("acme", &wrapped).unwrap_err(), Unreadable::Key);
        assert_eq!(keys(&[1]).unwrap("other", &wrapped).unwrap_err(), Unreadable::Key);
    }

    proptest! {
        /// Q25: what was sealed opens under its own name only, and not after any change.
        #[test]
        fn a_seal_fits_one_payload(data in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>()) {
            let master = keys(&[7]);
            let key = master.unwrap("acme", &master.new_key("acme")).unwrap();
            let mut sealed = key.seal(about("acme", "text/plain"), &data);
            prop_assert_eq!(key.open(about("acme", "text/plain"), &sealed).unwrap(), data.clone());
            prop_assert_eq!(key.open(about("acme", "text/html"), &sealed).unwrap_err(), Unreadable::Data);
            prop_assert_eq!(key.open(about("acm", "text/plain"), &sealed).unwrap_err(), Unreadable::Data);
            prop_assert_eq!(key.open(about("acme", "text/plain"), &sealed[..sealed.len() - 1]).unwrap_err(), Unreadable::Data);
            let at = at.index(sealed.len());
            sealed[at] ^= 1;
            prop_assert_eq!(key.open(about("acme", "text/plain"), &sealed).unwrap_err(), Unreadable::Data);
        }
    }
}
