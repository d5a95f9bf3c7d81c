//! Twilio's HTTP API: one request per SMS.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::{Client, Url};
use towpath_model::message::{Keys, NotSent, Sms};
use towpath_model::redact::Secret;

use crate::resend::http_url;
use crate::transport::{Receipt, Trouble};
use crate::{Error, Transport, http};

/// Twilio documents no idempotency keys for messages, so a missing response is an uncertain outcome. The key is sent
/// anyway, in the header that its own libraries use.
#[derive(Debug)]
pub struct Twilio {
    client: Client,
    messages: Url,
    account: String,
    auth_token: Secret,
    from: Option<String>,
}

impl Twilio {
    /// Sends through the API at this address, with this account.
    pub fn new(
        url: &str,
        account: String,
        auth_token: Secret,
        from: Option<String>,
        timeout: Duration,
    ) -> Result<Twilio, Error> {
        let plain = !account.is_empty() && account.chars().all(|c| c.is_ascii_alphanumeric());
        if !plain {
            return Err(Error::invalid("twilio_account", "expected an account SID of letters and digits"));
        }
        let messages = http_url(url, "twilio_url")?;
        let messages = messages
            .join(&format!("2010-04-01/Accounts/{account}/Messages.json"))
            .map_err(|error| Error::invalid("twilio_url", error))?;
        let client = http::client(timeout).map_err(|error| Error::invalid("twilio_url", error))?;
        Ok(Twilio { client, messages, account, auth_token, from })
    }

    async fn ask(&self, sms: &Sms) -> Result<Receipt, Trouble> {
        let from = sms.from.as_deref().or(self.from.as_deref());
        let from = from
            .ok_or_else(|| Trouble::permanent("the SMS has no sender; set from, or the setting sms_from"))?;
        // A sender is a number, a name, or a messaging service.
        let sender = if from.starts_with("MG") { "MessagingServiceSid" } else { "From" };
        let form = [("To", sms.to.as_str()), (sender, from), ("Body", sms.text.as_str())];
        let request = self
            .client
            .post(self.messages.clone())
            .basic_auth(&self.account, Some(self.auth_token.expose()))
            .header("I-Twilio-Idempotency-Token", &sms.idempotency_key)
            .form(&form);
        let answer = http::ask(request, Keys::Ignored).await?;
        let status = answer["status"].as_str().unwrap_or("accepted");
        Ok(Receipt {
            transport: "twilio",
            provider_id: answer["sid"].as_str().map(str::to_owned),
            response: status.to_owned(),
            idempotency_key: sms.idempotency_key.clone(),
        })
    }
}

impl Transport<Sms> for Twilio {
    fn name(&self) -> &'static str {
        "twilio"
    }

    fn keys(&self) -> Keys {
        Keys::Ignored
    }

    fn from(&self) -> Option<&str> {
        self.from.as_deref()
    }

    fn send<'a>(&'a self, sms: &'a Sms) -> BoxFuture<'a, Result<Receipt, NotSent>> {
        async { self.ask(sms).await.map_err(|trouble| trouble.not_sent("twilio", Keys::Ignored)) }.boxed()
    }
}
