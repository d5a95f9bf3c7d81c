//! Removes secrets from text that people see.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A password or a key. Only [`Secret::expose`] reveals it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Secret {
        Secret(secret.into())
    }

    /// The secret itself, for authentication.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Secret, Infallible> {
        Ok(Secret::new(text))
    }
}

/// A database address without its password, in either form PostgreSQL takes.
pub fn url(address: &str) -> String {
    let hidden = hide_userinfo(address);
    hide_keyword(&hidden)
}

/// `scheme://user:password@host`: everything after the first colon up to the last `@`
/// before the path.
fn hide_userinfo(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    // An unescaped slash in the password ends the authority early; then search further.
    let at = rest[..authority_end].rfind('@').or_else(|| rest.rfind('@'));
    match at.and_then(|at| Some((at, rest[..at].find(':')?))) {
        Some((at, colon)) => format!("{scheme}://{}:***{}", &rest[..colon], &rest[at..]),
        None => address.to_owned(),
    }
}

/// `password=…` as a keyword or a query parameter, quoted or not.
fn hide_keyword(address: &str) -> String {
    let Some(start) = address.find("password=").map(|at| at + "password=".len()) else {
        return address.to_owned();
    };
    let value = &address[start..];
    let length = match value.strip_prefix('\'') {
        Some(quoted) => quoted.find('\'').map_or(value.len(), |end| end + 2),
        None => value.find(|c: char| c == '&' || c.is_whitespace()).unwrap_or(value.len()),
    };
    format!("{}***{}", &address[..start], &value[length..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Secret, url};

    #[test]
    fn a_secret_does_not_show_itself() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some(***)");
    }

    #[test]
    fn passwords_are_hidden_and_the_rest_stays() {
        let same = "postgresql://towpath@/towpath?host=%2Fdata";
        for (address, shown) in [
            ("postgresql://u:secret@h:5432/d", "postgresql://u:***@h:5432/d"),
            ("postgres://u:a@b@h/d?x=1", "postgres://u:***@h/d?x=1"),
            ("postgres://u:a/b@h/d", "postgres://u:***@h/d"),
            ("postgresql://h/d?user=u&password=secret&x=1", "postgresql://h/d?user=u&password=***&x=1"),
            ("host=h password='a secret' user=u", "host=h password=*** user=u"),
            (same, same),
        ] {
            assert_eq!(url(address), shown);
        }
    }

    proptest! {
        #[test]
        fn no_password_survives(password in "[A-Z0-9]{4,20}") {
            let addresses = [
                format!("postgresql://user:{password}@host:5432/db"),
                format!("postgresql://host/db?password={password}"),
                format!("host=h password={password}"),
            ];
            for address in addresses {
                prop_assert!(!url(&address).contains(&password));
            }
        }
    }
}
