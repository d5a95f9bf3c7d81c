//! Settings of e-mail and SMS transports.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, value_parser};
use towpath_message::{MailTransport, Settings, SmsTransport, Transports};
use towpath_model::redact::Secret;

#[derive(Args, Debug, Clone)]
pub(crate) struct MessageSettings {
    /// E-mail transport: smtp, resend or log; without it this process runs no e-mail tasks
    #[arg(long, value_name = "NAME")]
    mail_transport: Option<MailTransport>,
    /// Default sender of e-mails
    #[arg(long, value_name = "ADDRESS")]
    mail_from: Option<String>,
    /// SMTP server: smtps://user:password@host for TLS, smtp://… for STARTTLS
    #[arg(long, value_name = "URL", hide_env_values = true)]
    smtp_url: Option<Secret>,
    /// Additional CA certificates to trust, in PEM
    #[arg(long, value_name = "FILE")]
    smtp_ca: Option<PathBuf>,
    /// Resend API key
    #[arg(long, value_name = "KEY", hide_env_values = true)]
    resend_api_key: Option<Secret>,
    /// Resend API address
    #[arg(long, value_name = "URL", default_value = "https://api.resend.com")]
    resend_url: String,
    /// SMS transport: twilio or log; without it this process runs no SMS tasks
    #[arg(long, value_name = "NAME")]
    sms_transport: Option<SmsTransport>,
    /// Default sender of SMS
    #[arg(long, value_name = "NUMBER")]
    sms_from: Option<String>,
    /// Twilio account SID
    #[arg(long, value_name = "SID")]
    twilio_account: Option<String>,
    /// Twilio auth token
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    twilio_auth_token: Option<Secret>,
    /// Twilio API address
    #[arg(long, value_name = "URL", default_value = "https://api.twilio.com")]
    twilio_url: String,
    /// Timeout of one send; must be shorter than an attempt's lease of 120 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = value_parser!(u32).range(1..=100))]
    message_timeout_seconds: u32,
}

impl MessageSettings {
    /// Builds the configured transports.
    pub(crate) fn transports(&self) -> anyhow::Result<Transports> {
        self.settings().transports().context("invalid message settings")
    }

    /// For development: a channel without a transport uses the log.
    pub(crate) fn transports_or_log(&self) -> anyhow::Result<Transports> {
        let mut chosen = self.clone();
        chosen.mail_transport.get_or_insert(MailTransport::Log);
        chosen.sms_transport.get_or_insert(SmsTransport::Log);
        chosen.transports()
    }

    /// Everything goes to the log, whatever the settings say.
    pub(crate) fn log_alone(&self) -> anyhow::Result<Transports> {
        let mut chosen = self.clone();
        (chosen.mail_transport, chosen.sms_transport) = (Some(MailTransport::Log), Some(SmsTransport::Log));
        chosen.transports()
    }

    fn settings(&self) -> Settings {
        Settings {
            mail_transport: self.mail_transport,
            mail_from: self.mail_from.clone(),
            sms_transport: self.sms_transport,
            sms_from: self.sms_from.clone(),
            smtp_url: self.smtp_url.clone(),
            smtp_ca: self.smtp_ca.clone(),
            resend_api_key: self.resend_api_key.clone(),
            resend_url: self.resend_url.clone(),
            twilio_account: self.twilio_account.clone(),
            twilio_auth_token: self.twilio_auth_token.clone(),
            twilio_url: self.twilio_url.clone(),
            timeout: Duration::from_secs(self.message_timeout_seconds.into()),
        }
    }
}
