//! Messages: their content and the outcome of a send.

mod outcome;
mod payload;

pub use outcome::{HttpAnswer, Keys, NotSent, Outcome, SmtpStage, classify_http, classify_smtp, retry_after};
pub use payload::{Email, Sms, message_id};
