//! The dashboard, as the settings describe it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;
use towpath_dashboard::{Access, Config, Cookies, Secret, TestSender, Tested};
use towpath_db::Database;
use towpath_db::event::RouteTest;
use towpath_route::webhook::{Sender, send_test};
use towpath_streams::{Circuits, Store};

use crate::settings::Settings;
use crate::streams;

/// Its routes.
pub(crate) fn router(
    settings: &Settings,
    database: Database,
    store: Arc<dyn Store>,
    circuits: Circuits,
    shutdown: CancellationToken,
) -> anyhow::Result<Router> {
    let access = match &settings.admin_password {
        None => Access::Open,
        Some(admin) => Access::Guarded {
            admin: Secret::new(admin),
            viewer: settings.viewer_password.as_ref().map(Secret::new),
        },
    };
    let webhooks = Arc::new(Webhooks(Sender::new(crate::route::reach(settings))?));
    let cookies = if streams::is_reached_by_tls(settings) { Cookies::Secure } else { Cookies::AsAsked };
    Ok(towpath_dashboard::router(Config { database, store, circuits, webhooks, access, cookies }, shutdown))
}

/// The sender of routes, for the pages.
struct Webhooks(Sender);

impl TestSender for Webhooks {
    fn send(&self, test: RouteTest) -> Pin<Box<dyn Future<Output = Tested> + Send + '_>> {
        Box::pin(async move {
            let report = send_test(&self.0, &test).await;
            Tested { outcome: report.outcome, failure: report.failure }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use crate::Cli;

    /// An id where a page puts one.
    const ID: &str = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";

    /// O03: every command that a page shows beside a button or in an empty state is one that this
    /// binary takes.
    #[test]
    fn commands_on_pages_are_commands_of_ours() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboard");
        let (mut seen, mut wrong) = (0, vec![]);
        for directory in ["templates", "src/page"] {
            for entry in std::fs::read_dir(pages.join(directory)).unwrap() {
                let path = entry.unwrap().path();
                for command in commands(&std::fs::read_to_string(&path).unwrap()) {
                    let parsed = Cli::command().try_get_matches_from(words(&command));
                    wrong.extend(parsed.err().map(|error| format!("{}: {command}: {error}", path.display())));
                    seen += 1;
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(seen > 40, "only {seen} commands were found; does this still read them?");
    }

    /// What stands in `<code class="cli">` or in a string of its own, with ids for what is filled in.
    fn commands(text: &str) -> Vec<String> {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let ends = [(r#"class="cli">towpath "#, "</code>"), (r#""towpath "#, "\"")];
        ends.iter()
            .flat_map(|(start, end)| {
                text.split(start).skip(1).map(move |rest| rest.split(end).next().unwrap_or_default())
            })
            .map(|rest| format!("towpath {}", filled_in(rest)))
            .collect()
    }

    fn filled_in(template: &str) -> String {
        let mut text = template.replace("{}", ID).replace("STATUS", "closed").replace('…', "because");
        while let Some((before, after)) = text.clone().split_once("{{") {
            let after = after.split_once("}}").map_or("", |(_, after)| after);
            text = format!("{before}{ID}{after}");
        }
        text
    }

    /// As a shell would: what stands in single quotes is one word.
    fn words(command: &str) -> Vec<String> {
        let mut words = vec![];
        for (at, part) in command.split('\'').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }
}
