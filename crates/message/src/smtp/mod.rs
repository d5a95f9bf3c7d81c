//! SMTP, one step of the dialogue at a time.
//!
//! lettre composes the mail and implements the protocol. Its own transport runs the whole dialogue in one call and returns
//! the same error for a lost connection whether or not the mail had been sent; that is the difference between transient
//! and uncertain.

mod address;
mod compose;
mod pool;

use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use lettre::address::Envelope;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use towpath_model::message::{Email, Keys, NotSent, Outcome, SmtpStage, classify_smtp};

use crate::transport::{Receipt, Trouble};
use crate::{Error, Transport};
use pool::Pool;

/// Sends through one SMTP server, over a few pooled connections.
#[derive(Debug)]
pub struct Smtp {
    pool: Pool,
    from: Option<String>,
    timeout: Duration,
}

/// Why a command failed, and at which stage.
struct Broken {
    stage: SmtpStage,
    reply: Option<u16>,
    words: String,
}

impl Smtp {
    /// The server of a URL such as `smtps://user:password@host` (TLS from the start) or `smtp://user:password@host` (STARTTLS
    /// required). `root` is a PEM file with additional CA certificates.
    pub fn new(
        url: &str,
        root: Option<&std::path::Path>,
        from: Option<String>,
        timeout: Duration,
    ) -> Result<Smtp, Error> {
        Ok(Smtp { pool: Pool::new(address::Address::read(url, root)?), from, timeout })
    }

    async fn deliver(&self, email: &Email) -> Result<Receipt, Trouble> {
        let composed = compose::compose(email, self.from.as_deref()).map_err(Trouble::permanent)?;
        let until = Instant::now() + self.timeout;
        let bytes = composed.mail.formatted();
        let mut sent = self.once(composed.mail.envelope(), &bytes, until).await;
        // A pooled connection may have died while idle. The server has received nothing of this mail, so it is safe to use a
        // new connection.
        if matches!(&sent, Err((Broken { stage: SmtpStage::Envelope, reply: None, .. }, true))) {
            self.pool.forget_idle();
            sent = self.once(composed.mail.envelope(), &bytes, until).await;
        }
        match sent {
            Ok(response) => Ok(Receipt {
                transport: "smtp",
                provider_id: Some(composed.message_id),
                response: words(&response),
                idempotency_key: email.idempotency_key.clone(),
            }),
            Err((broken, _)) => Err(broken.trouble()),
        }
    }

    /// One dialogue; a failure says whether the connection was reused.
    async fn once(
        &self,
        envelope: &Envelope,
        bytes: &[u8],
        until: Instant,
    ) -> Result<Response, (Broken, bool)> {
        let got = within(until, SmtpStage::Session, self.pool.get()).await;
        let mut held = got.map_err(|broken| (broken, false))?;
        let used = held.used;
        let connection = &mut held.connection;
        let response = match send_mail(connection, envelope, bytes, until).await {
            Ok(response) => response,
            Err(broken) => {
                // After an error reply a new mail would need a reset first; closing is simpler.
                return Err((broken, used));
            }
        };
        held.give_back();
        Ok(response)
    }
}

/// From MAIL to the reply to the data.
async fn send_mail(
    connection: &mut AsyncSmtpConnection,
    envelope: &Envelope,
    bytes: &[u8],
    until: Instant,
) -> Result<Response, Broken> {
    use SmtpStage::{Data as Sending, Envelope as Asking};
    let options = options(connection, envelope, bytes)?;
    within(until, Asking, connection.command(Mail::new(envelope.from().cloned(), options))).await?;
    for recipient in envelope.to() {
        // One refused recipient refuses the mail: a partial delivery could not be retried.
        within(until, Asking, connection.command(Rcpt::new(recipient.clone(), vec![]))).await?;
    }
    within(until, Asking, connection.command(Data)).await?;
    within(until, Sending, connection.message(bytes)).await
}

fn options(
    connection: &AsyncSmtpConnection,
    envelope: &Envelope,
    bytes: &[u8],
) -> Result<Vec<MailParameter>, Broken> {
    let can = |extension| connection.server_info().supports_feature(extension);
    let cannot = |words: &str| Broken { stage: SmtpStage::Envelope, reply: Some(550), words: words.into() };
    let mut options = vec![];
    let mut addresses = envelope.from().into_iter().chain(envelope.to());
    if addresses.any(|address| !AsRef::<str>::as_ref(address).is_ascii()) {
        if !can(Extension::SmtpUtfEight) {
            return Err(cannot("an address is not ASCII, and the server does not support SMTPUTF8"));
        }
        options.push(MailParameter::SmtpUtfEight);
    }
    if !bytes.is_ascii() {
        if !can(Extension::EightBitMime) {
            return Err(cannot("the mail is not ASCII, and the server does not support 8BITMIME"));
        }
        options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Ok(options)
}

/// A step, with its stage and the remaining time.
async fn within<T, E: Into<Cause>>(
    until: Instant,
    stage: SmtpStage,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, Broken> {
    match tokio::time::timeout_at(until.into(), step).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let Cause { reply, words } = error.into();
            Err(Broken { stage, reply, words })
        }
        Err(_) => Err(Broken { stage, reply: None, words: "timeout".into() }),
    }
}

/// The error without lettre's types.
struct Cause {
    reply: Option<u16>,
    words: String,
}

impl From<lettre::transport::smtp::Error> for Cause {
    fn from(error: lettre::transport::smtp::Error) -> Cause {
        Cause { reply: error.status().map(u16::from), words: error.to_string() }
    }
}

impl Broken {
    fn trouble(self) -> Trouble {
        let outcome = classify_smtp(self.stage, self.reply);
        let words = match (outcome, self.stage) {
            (Outcome::Uncertain, _) => format!("the mail may have been sent: {}", self.words),
            (_, SmtpStage::Session) => format!("cannot start a session with the server: {}", self.words),
            _ => self.words,
        };
        Trouble::new(outcome, words).code(self.reply)
    }
}

fn words(response: &Response) -> String {
    let text = response.message().collect::<Vec<_>>().join(" ");
    format!("{} {}", response.code(), crate::transport::first_words(&text))
}

impl Transport<Email> for Smtp {
    fn name(&self) -> &'static str {
        "smtp"
    }

    /// A Message-ID does not deduplicate: the server accepts the same mail twice.
    fn keys(&self) -> Keys {
        Keys::Ignored
    }

    fn from(&self) -> Option<&str> {
        self.from.as_deref()
    }

    fn send<'a>(&'a self, email: &'a Email) -> BoxFuture<'a, Result<Receipt, NotSent>> {
        async { self.deliver(email).await.map_err(|trouble| trouble.not_sent("smtp", Keys::Ignored)) }.boxed()
    }
}
