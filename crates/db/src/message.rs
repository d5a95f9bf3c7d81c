//! Messages: the schema `comms`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use towpath_model::id::ProcessId;

use crate::answer::{given, read};
use crate::{Database, Error};

/// The channel of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// E-mail.
    Email,
    /// SMS.
    Sms,
}

/// Options of a send.
#[derive(Debug, Clone, Copy, Default)]
pub struct SendOptions<'a> {
    /// Idempotency key.
    pub idempotency_key: Option<&'a str>,
    /// Send no earlier than this.
    pub scheduled_at: Option<Timestamp>,
    /// The actor; none means the login.
    pub actor: Option<&'a str>,
}

/// A message that is being sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessageSent {
    /// The message.
    pub message_id: i64,
    /// The process that sends it.
    pub process_id: ProcessId,
    /// Whether a message with its key already existed.
    #[serde(default)]
    pub duplicate: bool,
    /// The root task: `send_email_task_id` or `send_sms_task_id`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A message in a list, without its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of comms.message; 0006_comms.sql says what each holds")]
pub struct Message {
    pub message_id: i64,
    pub channel: String,
    pub recipients: Vec<String>,
    pub subject: Option<String>,
    pub created_by: String,
    pub created_at: Timestamp,
    pub task_id: Option<i64>,
    pub process_id: Option<ProcessId>,
    pub state: Option<String>,
    pub finished_at: Option<Timestamp>,
}

/// A page of messages, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<Message>,
    /// Where to continue.
    pub cursor: Option<i64>,
}

/// A filter of messages; absent fields match everything.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the columns of the same name")]
pub struct MessageFilter {
    pub channel: Option<String>,
}

/// A message with its text and the tasks that send it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessageWhole {
    /// The message.
    pub message: Map<String, Value>,
    /// Its root tasks.
    pub tasks: Vec<Map<String, Value>>,
}

impl Database {
    /// Stores a message and starts its send process, in one transaction.
    pub async fn message_send(
        &self,
        channel: Channel,
        message: &Value,
        options: SendOptions<'_>,
    ) -> Result<MessageSent, Error> {
        let sql = match channel {
            Channel::Email => "select comms.send_email($1, $2, $3, $4)",
            Channel::Sms => "select comms.send_sms($1, $2, $3, $4)",
        };
        let SendOptions { idempotency_key, scheduled_at, actor } = options;
        read(self.call(sql, &[message, &idempotency_key, &scheduled_at, &actor]).await?)
    }

    /// A page of messages, newest first.
    pub async fn message_list(
        &self,
        filter: &MessageFilter,
        limit: i32,
        cursor: Option<i64>,
    ) -> Result<MessagePage, Error> {
        let filter = given(filter);
        read(self.call("select comms.message_list($1, $2, $3)", &[&filter, &limit, &cursor]).await?)
    }

    /// One message with its text.
    pub async fn message_show(&self, message_id: i64) -> Result<MessageWhole, Error> {
        let answer = self.call("select comms.message_show($1)", &[&message_id]).await?;
        read(answer).map_err(|error| match error {
            Error::NotFound(_) => Error::NotFound(format!(
                "there is no message {message_id}; list them with: towpath message list"
            )),
            other => other,
        })
    }
}
