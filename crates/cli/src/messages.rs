//! Settings of messages: how e-mail and SMS leave this process.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use towpath_message::{MailTransport, Settings, SmsTransport, Transports};
use towpath_model::redact::Secret;

#[derive(Args, Debug, Clone)]
pub(crate) struct MessageSettings {
    /// How e-mails leave: smtp, resend or log; without it this process takes no e-mail tasks
    #[arg(long, global = true, env = "TOWPATH_MAIL_TRANSPORT", value_name = "NAME")]
    mail_transport: Option<MailTransport>,
    /// Sender of e-mails that name none
    #[arg(long, global = true, env = "TOWPATH_MAIL_FROM", value_name = "ADDRESS")]
    mail_from: Option<String>,
    /// SMTP server: smtps://user:password@host for TLS, smtp://… for STARTTLS
    #[arg(long, global = true, env = "TOWPATH_SMTP_URL", value_name = "URL", hide_env_values = true)]
    smtp_url: Option<Secret>,
    /// Authorities to believe besides the system's, in PEM
    #[arg(long, global = true, env = "TOWPATH_SMTP_CA", value_name = "FILE")]
    smtp_ca: Option<PathBuf>,
    /// Key of Resend's API
    #[arg(long, global = true, env = "TOWPATH_RESEND_API_KEY", value_name = "KEY", hide_env_values = true)]
    resend_api_key: Option<Secret>,
    /// Where Resend's API is
    #[arg(
        long,
        global = true,
        env = "TOWPATH_RESEND_URL",
        value_name = "URL",
        default_value = "https://api.resend.com"
    )]
    resend_url: String,
    /// How SMS leave: twilio or log; without it this process takes no SMS tasks
    #[arg(long, global = true, env = "TOWPATH_SMS_TRANSPORT", value_name = "NAME")]
    sms_transport: Option<SmsTransport>,
    /// Sender of SMS that name none
    #[arg(long, global = true, env = "TOWPATH_SMS_FROM", value_name = "NUMBER")]
    sms_from: Option<String>,
    /// Account SID at Twilio
    #[arg(long, global = true, env = "TOWPATH_TWILIO_ACCOUNT", value_name = "SID")]
    twilio_account: Option<String>,
    /// Auth token of that account
    #[arg(
        long,
        global = true,
        env = "TOWPATH_TWILIO_AUTH_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    twilio_auth_token: Option<Secret>,
    /// Where Twilio's API is
    #[arg(
        long,
        global = true,
        env = "TOWPATH_TWILIO_URL",
        value_name = "URL",
        default_value = "https://api.twilio.com"
    )]
    twilio_url: String,
    /// How long one send may take; shorter than the lease of an attempt, 120
    #[arg(long, global = true, env = "TOWPATH_MESSAGE_TIMEOUT_SECONDS", value_name = "SECONDS",
          default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100))]
    message_timeout_seconds: u32,
}

impl MessageSettings {
    /// The ways out, ready to send.
    pub(crate) fn transports(&self) -> anyhow::Result<Transports> {
        self.settings().transports().context("messages cannot leave as the settings say")
    }

    /// The same for development: what has no way out goes to the log.
    pub(crate) fn transports_or_log(&self) -> anyhow::Result<Transports> {
        let mut chosen = self.clone();
        chosen.mail_transport.get_or_insert(MailTransport::Log);
        chosen.sms_transport.get_or_insert(SmsTransport::Log);
        chosen.transports()
    }

    /// Everything to the log, whatever was set.
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
