//! Sends e-mail and SMS. An internal part: applications depend on the crate `towpath`.
//!
//! SMTP, Resend, Twilio and `log` implement the [`Transport`] trait. Each distinguishes four outcomes of a send: accepted,
//! transient, permanent, uncertain. The task types `email` and `sms` are job kinds: [`register`] adds their handlers to
//! a worker.
//!
//! Nothing here decides about a retry: the process's supervisor does.

mod http;
mod limits;
mod log;
mod resend;
mod settings;
mod smtp;
mod task;
mod transport;
mod twilio;

pub use log::Log;
pub use resend::Resend;
pub use settings::{Error, MailTransport, Settings, SmsTransport, Transports};
pub use smtp::Smtp;
pub use task::register;
pub use transport::{Receipt, Transport};
pub use twilio::Twilio;
