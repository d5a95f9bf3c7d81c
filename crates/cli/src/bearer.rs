//! Tokens for other servers: from a setting, or from a file that is read again while the process runs, so
//! that renewing a token needs no restart.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use towpath_model::token::{BadLine, Bearer, TokenList};

/// How often the file is read again: a read is cheap, and a renewed token should be used soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The token of the setting, the tokens of the file, or none.
pub(crate) fn from_settings(token: Option<&String>, file: Option<&PathBuf>) -> anyhow::Result<Bearer> {
    match (token, file) {
        (Some(token), _) => Ok(Bearer::fixed(token.as_str())),
        (None, Some(path)) => {
            let list = read(path)?;
            if list.is_empty() {
                bail!("{} contains no token; create one with: towpath project token", path.display());
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
                // The file may be half written; the previous tokens are better than none.
                Err(error) => tracing::warn!("cannot reload tokens, keeping the previous ones: {error:#}"),
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
            "line {line} of {}: expected TOKEN or PROJECT TOKEN, each project once",
            path.display()
        )
    })
}
