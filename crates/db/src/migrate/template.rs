//! The text of a process that sends messages, filled in for the channels of `comms` at their installation.

/// `sql/template/channel.sql`: how messages of a channel are stored and kicked off.
pub(super) const CHANNEL: &str = include_str!("../../sql/template/channel.sql");
/// `sql/template/process.sql`: their handlers and supervisor.
pub(super) const PROCESS: &str = include_str!("../../sql/template/process.sql");

/// What is filled in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Template {
    /// The kind of job that is an attempt, which handlers are named after.
    task_kind: &'static str,
    /// The name of the process, which its tables and most of its functions begin with or contain.
    name: &'static str,
}

impl Template {
    /// The processes that send messages.
    pub(super) const CHANNELS: [Template; 2] = [
        Template { task_kind: "email", name: "send_email" },
        Template { task_kind: "sms", name: "send_sms" },
    ];

    /// A text with the names filled in.
    pub(super) fn fill(&self, text: &str) -> String {
        let names = [
            ("{{schema}}", "comms"),
            ("{{name}}", self.name),
            ("{{handler}}", self.task_kind),
            ("{{task_kind}}", self.task_kind),
        ];
        names.iter().fold(text.to_owned(), |text, (placeholder, value)| text.replace(placeholder, value))
    }
}
