//! Messages: e-mail and SMS leave through here.
//!
//! [`Transport`] is the one small trait; SMTP, Resend, Twilio and `log` are behind it. Each tells
//! the four outcomes of a send apart: accepted, transient, permanent, uncertain. The task types
//! `email` and `sms` put them on the job substrate: [`register`] adds their handlers to a worker.
//!
//! Nothing here decides whether a message is sent again: that is the process's supervisor.

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
