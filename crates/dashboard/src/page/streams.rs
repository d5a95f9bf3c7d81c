//! `/ui/streams`: the streams of a project.

use askama::Template;
use axum::extract::State;
use serde::Deserialize;
use towpath_streams::{Head, List};

use super::sessions::read_project;
use super::{Filter, inline};
use crate::App;
use crate::fault::{Answer, Fault};
use crate::filters::{self, percent};
use crate::limits::{FOLDER_LOOKS, ROWS_PAGE};
use crate::shell::{self, Shell};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    project: String,
    prefix: String,
    after: String,
}

#[derive(Template)]
#[template(path = "streams.html")]
struct Page {
    shell: Shell,
    command: String,
    asked: Asked,
    project: String,
    /// The next part of the ids, up to `/` or `:`, with its link.
    folders: Vec<(String, String)>,
    streams: Vec<Row>,
    count: i64,
    more: Option<String>,
}

struct Row {
    id: String,
    link: String,
    head: Head,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, filter: Filter<Asked>) -> Answer {
    let limit = usize::try_from(ROWS_PAGE).unwrap_or(100);
    let asked = &filter.asked;
    let look = async {
        filter.check()?;
        let project = read_project(&asked.project)?;
        let list = List {
            project: project.as_str().into(),
            prefix: asked.prefix.clone(),
            after: super::given(&asked.after),
            limit,
        };
        let found = app.store.list(list).await?;
        Ok::<_, Fault>((project.clone(), found, folders(&app, &project, &asked.prefix).await?))
    };
    let ((project, found, folders), problem) = inline(look.await)?;
    let asked = filter.asked;
    let more = found.last().filter(|_| found.len() == limit).map(|(name, _)| name.id.to_string());
    let row = |(name, head): (towpath_model::stream::name::StreamName, Head)| Row {
        link: format!("/ui/stream?project={}&id={}", percent(&name.project), percent(&name.id)),
        id: name.id.to_string(),
        head,
    };
    let flags = [("project", project.as_str()), ("prefix", asked.prefix.as_str())];
    let page = Page {
        command: super::command("towpath stream list", &flags),
        count: i64::try_from(app.store.count(&project)).unwrap_or(i64::MAX),
        folders,
        // Reserved streams are internal.
        streams: found.into_iter().filter(|(name, _)| !name.is_reserved()).map(row).collect(),
        more: more.map(|after| {
            let (project, prefix) = (percent(&project), percent(&asked.prefix));
            format!("/ui/streams?project={project}&prefix={prefix}&after={}", percent(&after))
        }),
        project,
        asked,
        shell: shell.at("/ui/streams", "Streams").live("streams").saying(problem.as_ref()),
    };
    shell::render_list(&page, problem.is_some())
}

/// The first few folders below a prefix. Each read skips everything in the folder before.
async fn folders(app: &App, project: &str, prefix: &str) -> Result<Vec<(String, String)>, Fault> {
    let (mut found, mut after) = (vec![], None);
    for _ in 0..FOLDER_LOOKS {
        let list = List { project: project.into(), prefix: prefix.to_owned(), after, limit: 1 };
        let Some((name, _)) = app.store.list(list).await?.pop() else { break };
        let rest = name.id.get(prefix.len()..).unwrap_or_default();
        after = Some(match rest.find(['/', ':']) {
            Some(at) => {
                let folder = format!("{prefix}{}", &rest[..=at]);
                if !name.is_reserved() {
                    let link = super::query(&[("project", project), ("prefix", &folder)]);
                    found.push((folder.clone(), format!("/ui/streams?{link}")));
                }
                format!("{folder}{}", char::MAX)
            }
            None => name.id.to_string(),
        });
    }
    Ok(found)
}
