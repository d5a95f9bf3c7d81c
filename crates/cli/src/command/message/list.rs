//! `towpath message list`.

use clap::Args;
use towpath_db::Database;
use towpath_db::message::{Message, MessageFilter, MessagePage};

use crate::command::job::first_line;
use crate::output::{Exit, Output, done, paged, table_or};

#[derive(Args)]
pub(crate) struct List {
    /// Only email or sms
    #[arg(long, value_parser = ["email", "sms"])]
    channel: Option<String>,
    /// Maximum number to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
    limit: i32,
    /// Continue after this one, the last of the previous page
    #[arg(long, value_name = "MESSAGE")]
    after: Option<i64>,
}

pub(crate) async fn run(list: List, database: &Database, output: &Output) -> Exit {
    let filter = MessageFilter { channel: list.channel };
    let page = database.message_list(&filter, list.limit, list.after).await?;
    output.show(&page, in_words);
    done()
}

fn in_words(page: &MessagePage) -> String {
    let head = ["MESSAGE", "CHANNEL", "TO", "SUBJECT", "STATE", "CREATED", "PROCESS"];
    paged(table_or("no messages", head, page.messages.iter().map(row)), page.cursor)
}

fn row(message: &Message) -> [String; 7] {
    [
        message.message_id.to_string(),
        message.channel.clone(),
        first_line(&message.recipients.join(", ")),
        first_line(message.subject.as_deref().unwrap_or_default()),
        message.state.clone().unwrap_or_else(|| "not sent".into()),
        format!("{:.0}", message.created_at),
        message.process_id.map_or_else(String::new, |process| process.to_string()),
    ]
}
