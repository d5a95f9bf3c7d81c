//! Tokens for other servers: from a setting, or from a file that is looked at again while it is used,
//! because tokens end and whoever renews them should not have to restart anything.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use towpath_model::token::{BadLine, Bearer, TokenList};

/// How old the last look at a file may be: a look costs little, and a new token is wanted soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The token as it was set, or those of the file, or none.
pub(crate) fn from_settings(token: Option<&String>, file: Option<&PathBuf>) -> anyhow::Result<Bearer> {
    match (token, file) {
        (Some(token), _) => Ok(Bearer::fixed(token.as_str())),
        (None, Some(path)) => {
            let list = read(path)?;
            if list.is_empty() {
                bail!("{} has no token; see: towpath project token", path.display());
            }
            let kept = Kept { path: path.clone(), seen: Mutex::new(Seen { list, at: Instant::now() }) };
            Ok(Bearer::new(move |project| kept.of(project)))
        }
        (None, None) => Ok(Bearer::default()),
    }
}

struct Kept {
    path: PathBuf,
    seen: Mutex<Seen>,
}

struct Seen {
    list: TokenList,
    at: Instant,
}

impl Kept {
    fn of(&self, project: &str) -> Option<String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.at.elapsed() >= LOOK_EVERY {
            seen.at = Instant::now();
            match read(&self.path) {
                Ok(list) => seen.list = list,
                // Somebody is writing it, perhaps: what was there before is as good as nothing, or better.
                Err(error) => tracing::warn!("the tokens stay as they were: {error:#}"),
            }
        }
        seen.list.of(project).map(str::to_owned)
    }
}

fn read(path: &Path) -> anyhow::Result<TokenList> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read tokens from {}", path.display()))?;
    TokenList::parse(&text).map_err(|BadLine(line)| {
        anyhow::anyhow!(
            "line {line} of {} is not a token, or a project and its token, or stands there twice",
            path.display()
        )
    })
}
