//! The text of a business process, filled in: for the channels of `comms` at their installation, and for the processes
//! that `towpath process new` writes.

/// `sql/template/channel.sql`: how messages of a channel are stored and kicked off.
pub(super) const CHANNEL: &str = include_str!("../../sql/template/channel.sql");
/// `sql/template/process.sql`. A line `-- [a b]` begins a part that only the variants a and b have, `-- [end]` ends it.
pub const PROCESS: &str = include_str!("../../sql/template/process.sql");

/// What is filled in.
#[derive(Debug, Clone, Copy)]
pub struct Template<'a> {
    /// The schema of its tables and functions.
    pub schema: &'a str,
    /// The name of the process, which its tables and most of its functions begin with or contain.
    pub name: &'a str,
    /// The same for its handlers.
    pub handler: &'a str,
    /// The kind of job that is an attempt.
    pub task_kind: &'a str,
    /// Which parts are for it.
    pub variant: &'a str,
}

impl Template<'static> {
    /// The processes that send messages.
    pub const CHANNELS: [Template<'static>; 2] = [channel("email", "send_email"), channel("sms", "send_sms")];
}

const fn channel(task_kind: &'static str, name: &'static str) -> Template<'static> {
    Template { schema: "comms", name, handler: task_kind, task_kind, variant: "comms" }
}

impl Template<'_> {
    /// A text with the parts for this variant and with the names filled in.
    pub fn fill(&self, text: &str) -> String {
        let mut keep = true;
        let mut filled = String::with_capacity(text.len());
        for line in text.lines() {
            match line.strip_prefix("-- [").and_then(|line| line.strip_suffix(']')) {
                Some("end") => keep = true,
                Some(variants) => keep = variants.split(' ').any(|variant| variant == self.variant),
                None if keep => {
                    filled.push_str(line);
                    filled.push('\n');
                }
                None => {}
            }
        }
        let names = [
            ("{{schema}}", self.schema),
            ("{{name}}", self.name),
            ("{{handler}}", self.handler),
            ("{{task_kind}}", self.task_kind),
        ];
        names.iter().fold(filled, |text, (placeholder, value)| text.replace(placeholder, value))
    }
}
