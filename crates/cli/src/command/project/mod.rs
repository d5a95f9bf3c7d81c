//! `towpath project …`: who may use which streams.

mod registry;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use towpath_model::token::{Material, PrivateKey, Secret};
use towpath_server::project::{Change, Mint, NewKey, new_pair, random_secret};

use crate::output::{Output, table};
use crate::settings::Settings;
use registry::Registry;

#[derive(Subcommand)]
pub(crate) enum Project {
    /// Register a project: from now on it takes tokens, and nothing else
    Add {
        /// Its name, as in /v1/NAME/stream/…
        project: String,
        #[command(flatten)]
        key: KeyArgs,
        /// Pages of this origin may use it from a browser; may be given several times
        #[arg(long, value_name = "ORIGIN")]
        origin: Vec<String>,
    },
    /// Registered projects
    List,
    /// A project's keys, without their secrets
    Keys {
        /// The project
        project: String,
    },
    /// Add a key, which signs from now on; the others go on verifying until they are revoked
    Rotate {
        /// The project
        project: String,
        #[command(flatten)]
        key: KeyArgs,
        /// Make new reader keys instead: pages in caches are found no more
        #[arg(long)]
        reader_key: bool,
    },
    /// Take a key away: its tokens end at once, open connections too
    Revoke {
        /// The project
        project: String,
        /// The key
        kid: String,
    },
    /// Set from which origins browsers may use it; none without arguments
    Origins {
        /// The project
        project: String,
        /// All of them, such as `https://app.example.com`, or `*`
        origins: Vec<String>,
    },
    /// Make a token
    Token(TokenArgs),
    /// Forget a project; its streams stay
    Remove {
        /// The project
        project: String,
        /// Yes, really
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args)]
pub(crate) struct KeyArgs {
    /// The key's name in tokens [default: made up]
    #[arg(long)]
    kid: Option<String>,
    /// How tokens are signed
    #[arg(long, default_value = "HS256", ignore_case = true)]
    algorithm: Algorithm,
    /// The public half (EdDSA) or the secret (HS256), base64 in a file, instead of a new one
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Algorithm {
    /// One secret signs and verifies
    #[value(name = "HS256")]
    Hs256,
    /// A private key signs, Towpath keeps the public one
    #[value(name = "EdDSA")]
    EdDsa,
}

#[derive(Args)]
pub(crate) struct TokenArgs {
    /// The project
    project: String,
    /// What it allows: read, write or manage
    #[arg(long, default_value = "read")]
    scope: String,
    /// How long it is good
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    seconds: u64,
    /// Only for this stream; may be given several times
    #[arg(long, value_name = "ID")]
    stream: Vec<String>,
    /// Only for this session
    #[arg(long, value_name = "UUID")]
    session: Option<String>,
    /// Signed by this key [default: the newest that can]
    #[arg(long)]
    kid: Option<String>,
    /// Sign with this private key (EdDSA, PKCS#8, base64) instead of asking the registry
    #[arg(long, value_name = "FILE", requires = "kid")]
    private_key: Option<PathBuf>,
}

pub(crate) async fn run(project: Project, settings: &Settings, output: &Output) -> anyhow::Result<ExitCode> {
    if let Project::Token(TokenArgs { private_key: Some(file), .. }) = &project {
        let secret = read_key(file)?;
        let Project::Token(token) = project else { unreachable!("matched above") };
        let (kid, mint) = (token.kid.clone().unwrap_or_default(), token.mint());
        let signed = PrivateKey::EdDsa(secret.bytes()).sign(&kid, &mint.claims(&token.project)?);
        show_token(output, &signed.context("the private key cannot sign")?);
        return Ok(ExitCode::SUCCESS);
    }
    let registry = Registry::open(settings).await?;
    let code = act(project, &registry, output).await;
    registry.close().await;
    code
}

async fn act(project: Project, registry: &Registry, output: &Output) -> anyhow::Result<ExitCode> {
    match project {
        Project::Add { project, key, origin } => {
            let (key, shown) = key.make()?;
            let change = Change::Add { key: key.clone(), origins: origin };
            registry.change(&project, change).await?;
            show_key(output, &project, &key, shown.as_ref());
        }
        Project::Rotate { project, reader_key: true, .. } => {
            let after = registry.change(&project, Change::ReaderKey).await?;
            output.show(&after, |_| format!("{project} has new reader keys"));
        }
        Project::Rotate { project, key, reader_key: false } => {
            let (key, shown) = key.make()?;
            registry.change(&project, Change::AddKey { key: key.clone() }).await?;
            show_key(output, &project, &key, shown.as_ref());
        }
        Project::Revoke { project, kid } => {
            let after = registry.change(&project, Change::Revoke { kid: kid.clone() }).await?;
            output.show(&after, |after| match after["keys"].as_array().map_or(0, Vec::len) {
                0 => format!("{kid} opens nothing any more; {project} has no key and takes no token now"),
                _ => format!("{kid} opens nothing any more"),
            });
        }
        Project::Origins { project, origins } => {
            let after = registry.change(&project, Change::Origins { origins }).await?;
            output.show(&after, |after| format!("{project}: {}", words(&after["origins"])));
        }
        Project::List => {
            let list = registry.list().await?;
            output.show(&list, |list| {
                let rows: Vec<_> = list.as_array().into_iter().flatten().map(row).collect();
                match rows.is_empty() {
                    true => "no projects; register one with: towpath project add NAME".into(),
                    false => table(["PROJECT", "KEYS", "ORIGINS", "REGISTERED"], &rows),
                }
            });
        }
        Project::Keys { project } => {
            let found = registry.list().await?;
            let found = found.as_array().into_iter().flatten().find(|one| one["project"] == project.as_str());
            let Some(found) = found else {
                bail!("project {project} is not registered; see: towpath project list")
            };
            output.show(&found["keys"], |keys| {
                let text = |key: &Value, name: &str| key[name].as_str().unwrap_or("-").to_owned();
                let rows: Vec<_> = keys
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|key| [text(key, "kid"), text(key, "alg"), text(key, "created_at")])
                    .collect();
                table(["KEY", "ALGORITHM", "MADE"], &rows)
            });
        }
        Project::Token(token) => show_token(output, &registry.mint(&token.project, &token.mint()).await?),
        Project::Remove { project, yes: false } => {
            output.line(&format!(
                "{project} would be forgotten with its keys. Its streams stay and, on this machine, open to \
                 everybody. Say --yes to do it"
            ));
            return Ok(ExitCode::from(3));
        }
        Project::Remove { project, yes: true } => {
            registry.change(&project, Change::Remove).await?;
            output
                .show(&json!({ "project": project, "removed": true }), |_| format!("{project} is forgotten"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl KeyArgs {
    /// The key for the registry, and what is shown of it once.
    fn make(self) -> anyhow::Result<(NewKey, Option<(&'static str, String)>)> {
        let kid = self.kid.unwrap_or_else(|| random_secret().reveal()[..8].replace(['-', '_'], "x"));
        let given = self.key_file.as_deref().map(read_key).transpose()?;
        let (material, shown) = match (self.algorithm, given) {
            (Algorithm::Hs256, None) => {
                let secret = random_secret();
                let shown = secret.reveal();
                (Material::hs256(secret)?, Some(("secret", shown)))
            }
            (Algorithm::Hs256, Some(secret)) => (Material::hs256(secret)?, None),
            (Algorithm::EdDsa, None) => {
                let (private, material) = new_pair();
                (material, Some(("private_key", private.reveal())))
            }
            (Algorithm::EdDsa, Some(public)) => (Material::eddsa(public)?, None),
        };
        Ok((NewKey { kid, material }, shown))
    }
}

impl TokenArgs {
    fn mint(&self) -> Mint {
        Mint {
            scope: self.scope.clone(),
            seconds: self.seconds,
            streams: self.stream.clone(),
            session: self.session.clone(),
            kid: self.kid.clone(),
        }
    }
}

fn read_key(file: &std::path::Path) -> anyhow::Result<Secret> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the key in {}", file.display()))?;
    let bare: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    Secret::parse(&bare).with_context(|| format!("the key in {}", file.display()))
}

fn show_key(output: &Output, project: &str, key: &NewKey, shown: Option<&(&'static str, String)>) {
    let mut data = json!({ "project": project, "kid": key.kid, "alg": key.material.algorithm() });
    if let Some((name, value)) = shown {
        data[*name] = json!(value);
    }
    output.show(&data, |_| {
        let first = format!("{project}: key {} ({})", key.kid, key.material.algorithm());
        match shown {
            Some(("secret", value)) => format!("{first}\nsecret, base64url: {value}"),
            Some((_, value)) => {
                format!("{first}\nprivate key, PKCS#8 in base64url, kept nowhere: {value}")
            }
            None => first,
        }
    });
}

fn show_token(output: &Output, token: &str) {
    output.show(&json!({ "token": token }), |_| token.to_owned());
}

fn row(project: &Value) -> [String; 4] {
    let text = |name: &str| project[name].as_str().unwrap_or("-").to_owned();
    let kids: Vec<Value> =
        project["keys"].as_array().into_iter().flatten().map(|key| key["kid"].clone()).collect();
    [text("project"), words(&Value::from(kids)), words(&project["origins"]), text("created_at")]
}

fn words(list: &Value) -> String {
    let words: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}
