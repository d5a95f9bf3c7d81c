//! Settings of the transports.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use towpath_model::message::{Email, Sms};
use towpath_model::redact::Secret;

use crate::{Log, Resend, Smtp, Transport, Twilio};

/// The e-mail transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTransport {
    /// An SMTP server.
    Smtp,
    /// Resend's HTTP API.
    Resend,
    /// The log: nothing is sent.
    Log,
}

/// The SMS transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmsTransport {
    /// Twilio's HTTP API.
    Twilio,
    /// The log: nothing is sent.
    Log,
}

/// All settings of messages. A missing setting of a chosen transport is an error that names it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The e-mail transport; without one this process runs no e-mail tasks.
    pub mail_transport: Option<MailTransport>,
    /// The default sender of e-mails.
    pub mail_from: Option<String>,
    /// The SMS transport; without one this process runs no SMS tasks.
    pub sms_transport: Option<SmsTransport>,
    /// The default sender of SMS.
    pub sms_from: Option<String>,
    /// The SMTP server, with user and password.
    pub smtp_url: Option<Secret>,
    /// Additional CA certificates, as a PEM file.
    pub smtp_ca: Option<PathBuf>,
    /// The Resend API key.
    pub resend_api_key: Option<Secret>,
    /// The address of that API.
    pub resend_url: String,
    /// The Twilio account.
    pub twilio_account: Option<String>,
    /// Its auth token.
    pub twilio_auth_token: Option<Secret>,
    /// The address of Twilio's API.
    pub twilio_url: String,
    /// Timeout of one send, from connecting to the response.
    pub timeout: Duration,
}

/// The configured transports.
#[derive(Clone, Default)]
pub struct Transports {
    /// For e-mail.
    pub email: Option<Arc<dyn Transport<Email>>>,
    /// For SMS.
    pub sms: Option<Arc<dyn Transport<Sms>>>,
}

/// A missing or invalid setting.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The chosen transport requires it.
    #[error("{transport} requires the setting {setting}; see: towpath settings")]
    Missing {
        /// The setting.
        setting: &'static str,
        /// The transport that was chosen.
        transport: &'static str,
    },
    /// It is invalid.
    #[error("{setting}: {why}")]
    Invalid {
        /// The setting.
        setting: &'static str,
        /// Why.
        why: String,
    },
}

impl Error {
    pub(crate) fn invalid(setting: &'static str, why: impl Display) -> Error {
        Error::Invalid { setting, why: why.to_string() }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mail_transport: None,
            mail_from: None,
            sms_transport: None,
            sms_from: None,
            smtp_url: None,
            smtp_ca: None,
            resend_api_key: None,
            resend_url: "https://api.resend.com".into(),
            twilio_account: None,
            twilio_auth_token: None,
            twilio_url: "https://api.twilio.com".into(),
            timeout: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// Builds the transports. Nothing is connected yet.
    pub fn transports(&self) -> Result<Transports, Error> {
        Ok(Transports {
            email: self.mail_transport.map(|chosen| self.email(chosen)).transpose()?,
            sms: self.sms_transport.map(|chosen| self.sms(chosen)).transpose()?,
        })
    }

    fn email(&self, chosen: MailTransport) -> Result<Arc<dyn Transport<Email>>, Error> {
        let from = self.mail_from.clone();
        Ok(match chosen {
            MailTransport::Log => Arc::new(Log::new(from)),
            MailTransport::Smtp => {
                let url = need(&self.smtp_url, "smtp_url", "smtp")?;
                Arc::new(Smtp::new(url.expose(), self.smtp_ca.as_deref(), from, self.timeout)?)
            }
            MailTransport::Resend => {
                let key = need(&self.resend_api_key, "resend_api_key", "resend")?;
                Arc::new(Resend::new(&self.resend_url, key, from, self.timeout)?)
            }
        })
    }

    fn sms(&self, chosen: SmsTransport) -> Result<Arc<dyn Transport<Sms>>, Error> {
        let from = self.sms_from.clone();
        Ok(match chosen {
            SmsTransport::Log => Arc::new(Log::new(from)),
            SmsTransport::Twilio => {
                let account = need(&self.twilio_account, "twilio_account", "twilio")?;
                let auth_token = need(&self.twilio_auth_token, "twilio_auth_token", "twilio")?;
                Arc::new(Twilio::new(&self.twilio_url, account, auth_token, from, self.timeout)?)
            }
        })
    }
}

fn need<T: Clone>(value: &Option<T>, setting: &'static str, transport: &'static str) -> Result<T, Error> {
    value.clone().ok_or(Error::Missing { setting, transport })
}

/// The names of an enum, in both directions.
macro_rules! words {
    ($name:ident: $($variant:ident = $word:literal),*) => {
        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$variant),)*
                    _ => Err(format!("{text} is not one of {}", [$($word),*].join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $word,)* })
            }
        }
    };
}

words!(MailTransport: Smtp = "smtp", Resend = "resend", Log = "log");
words!(SmsTransport: Twilio = "twilio", Log = "log");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_without_its_settings_says_which() {
        let error = |settings: Settings| settings.transports().map(|_| ()).unwrap_err().to_string();
        let smtp = Settings { mail_transport: Some(MailTransport::Smtp), ..Settings::default() };
        assert_eq!(error(smtp), "smtp requires the setting smtp_url; see: towpath settings");
        let twilio = Settings {
            sms_transport: Some(SmsTransport::Twilio),
            twilio_account: Some("AC1".into()),
            ..Settings::default()
        };
        assert_eq!(error(twilio), "twilio requires the setting twilio_auth_token; see: towpath settings");
    }

    /// Credentials are never sent unencrypted to another machine.
    #[test]
    fn http_is_for_this_machine_only() {
        let mut settings = Settings {
            mail_transport: Some(MailTransport::Resend),
            resend_api_key: Some(Secret::new("re_123")),
            resend_url: "http://api.example.org".into(),
            ..Settings::default()
        };
        let error = settings.transports().map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("resend_url: it is sent credentials"), "{error}");
        settings.resend_url = "http://127.0.0.1:9/api".into();
        assert!(settings.transports().is_ok());
        assert!(!format!("{settings:?}").contains("re_123"), "no secret is printed");
    }

    #[test]
    fn nothing_is_sent_unless_asked_for() {
        let transports = Settings::default().transports().expect("the default works");
        assert!(transports.email.is_none() && transports.sms.is_none());
    }
}
