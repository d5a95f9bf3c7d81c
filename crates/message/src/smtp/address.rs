//! The SMTP server's address, credentials and encryption.

use std::path::Path;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::Cause;
use crate::Error;

/// Preferred first; a password is sent only over an encrypted connection, or one explicitly without encryption.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];
const SETTING: &str = "smtp_url";

/// The configured SMTP server.
pub(super) struct Address {
    host: String,
    port: u16,
    line: Line,
    credentials: Option<Credentials>,
    hello: ClientId,
}

enum Line {
    /// TLS from the first byte.
    Implicit(TlsParameters),
    /// TLS after STARTTLS, which is required.
    StartTls(TlsParameters),
    /// No encryption, explicitly requested.
    Plain,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Address {
    pub(super) fn read(text: &str, root: Option<&Path>) -> Result<Address, Error> {
        let invalid = |why: &str| Error::invalid(SETTING, why);
        // A parse error could repeat a password.
        let url: Url = text.parse().map_err(|_| {
            invalid("expected a URL such as smtps://user:password@host, with special characters escaped, as in %40")
        })?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| invalid("it has no host"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let plain = match url.query() {
            None | Some("tls=required") => false,
            Some("tls=none") => true,
            Some(_) => return Err(invalid("the only query is tls=required or tls=none")),
        };
        let (line, port) = match (url.scheme(), plain) {
            ("smtps", false) => (Line::Implicit(tls(&host, root)?), 465),
            ("smtp", false) => (Line::StartTls(tls(&host, root)?), 587),
            ("smtp", true) => (Line::Plain, 25),
            _ => return Err(invalid("it must start with smtps:// (TLS) or smtp:// (STARTTLS)")),
        };
        Ok(Address {
            port: url.port().unwrap_or(port),
            credentials: credentials(&url)?,
            host,
            line,
            hello: ClientId::default(),
        })
    }

    /// A connection that is ready for MAIL.
    pub(super) async fn connect(&self) -> Result<AsyncSmtpConnection, Cause> {
        let implicit = match &self.line {
            Line::Implicit(tls) => Some(tls.clone()),
            Line::StartTls(_) | Line::Plain => None,
        };
        let server = (self.host.as_str(), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(server, None, &self.hello, implicit, None).await?;
        if let Line::StartTls(tls) = &self.line {
            connection.starttls(tls.clone(), &self.hello).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(&MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }
}

fn credentials(url: &Url) -> Result<Option<Credentials>, Error> {
    let decode = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|_| Error::invalid(SETTING, "user and password are not UTF-8"))
    };
    match (url.username(), url.password()) {
        ("", None) => Ok(None),
        (user, Some(password)) if !user.is_empty() => {
            Ok(Some(Credentials::new(decode(user)?, decode(password)?)))
        }
        _ => Err(Error::invalid(SETTING, "user and password must be given together")),
    }
}

fn tls(host: &str, root: Option<&Path>) -> Result<TlsParameters, Error> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if let Some(path) = root {
        let invalid =
            |why: String| Error::Invalid { setting: "smtp_ca", why: format!("{}: {why}", path.display()) };
        let pem = std::fs::read(path).map_err(|error| invalid(error.to_string()))?;
        let certificate = Certificate::from_pem(&pem).map_err(|error| invalid(error.to_string()))?;
        builder = builder.add_root_certificate(certificate);
    }
    builder.build_rustls().map_err(|error| Error::invalid(SETTING, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Address, String> {
        Address::read(text, None).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_says_how_the_line_is_encrypted() {
        assert!(matches!(
            read("smtps://u:p@mail.example.org").map(|a| (a.line, a.port)),
            Ok((Line::Implicit(_), 465))
        ));
        assert!(matches!(
            read("smtp://mail.example.org").map(|a| (a.line, a.port)),
            Ok((Line::StartTls(_), 587))
        ));
        assert!(matches!(
            read("smtp://127.0.0.1:2525?tls=none").map(|a| (a.line, a.port)),
            Ok((Line::Plain, 2525))
        ));
    }

    #[test]
    fn a_bad_address_is_refused_without_repeating_the_password() {
        for bad in [
            "smtps://u:hunter2@mail.example.org?tls=none",
            "smtp://u:hunter2@mail.example.org?tls=maybe",
            "http://u:hunter2@mail.example.org",
            "smtp://u:hunter2@",
            "u:hunter2@mail.example.org",
            "smtp://:hunter2@mail.example.org",
        ] {
            let message = read(bad).map(|_| ()).unwrap_err();
            assert!(message.starts_with("smtp_url: ") && !message.contains("hunter2"), "{bad}: {message}");
        }
    }
}
