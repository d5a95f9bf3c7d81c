//! `towpath project …`: who may access which streams.

mod registry;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use towpath_model::token::{Material, PrivateKey, Secret};
use towpath_server::project::{Change, Mint, NewKey, new_pair, random_secret};

use crate::output::{Exit, Output, done, table};
use crate::settings::Settings;
use registry::Registry;

#[derive(Subcommand)]
pub(crate) enum Project {
    /// Register a project; from then on every request needs a token
    Add {
        /// Name, as in /v1/NAME/stream/…
        project: String,
        #[command(flatten)]
        key: KeyArgs,
        /// Allow browser pages of this origin; repeatable
        #[arg(long, value_name = "ORIGIN")]
        origin: Vec<String>,
    },
    /// List registered projects
    List,
    /// List a project's keys, without their secrets
    Keys {
        /// The project
        project: String,
    },
    /// Add a key that signs new tokens; older keys stay valid until they are revoked
    Rotate {
        /// The project
        project: String,
        #[command(flatten)]
        key: KeyArgs,
        /// Rotate the reader keys instead; cached pages can no longer be found
        #[arg(long)]
        reader_key: bool,
    },
    /// Revoke a key; its tokens become invalid at once and open connections end
    Revoke {
        /// The project
        project: String,
        /// The key
        kid: String,
    },
    /// Set the allowed browser origins; without arguments, none
    Origins {
        /// The project
        project: String,
        /// All allowed origins, such as `https://app.example.com`, or `*`
        origins: Vec<String>,
    },
    /// Create a token
    Token(TokenArgs),
    /// Remove a project's registration; its streams stay
    Remove {
        /// The project
        project: String,
        /// Remove it
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args)]
pub(crate) struct KeyArgs {
    /// Key id in tokens (default: generated)
    #[arg(long)]
    kid: Option<String>,
    /// Signing algorithm
    #[arg(long, default_value = "HS256", ignore_case = true)]
    algorithm: Algorithm,
    /// File with the public key (EdDSA) or the secret (HS256) in base64, instead of a new key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Algorithm {
    /// One secret signs and verifies
    #[value(name = "HS256")]
    Hs256,
    /// A private key signs; Towpath stores only the public key
    #[value(name = "EdDSA")]
    EdDsa,
}

#[derive(Args)]
pub(crate) struct TokenArgs {
    /// The project
    project: String,
    /// Scope: read, write or manage
    #[arg(long, default_value = "read")]
    scope: String,
    /// Lifetime
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    seconds: u64,
    /// Only for this stream; repeatable
    #[arg(long, value_name = "ID")]
    stream: Vec<String>,
    /// Only for this session
    #[arg(long, value_name = "UUID")]
    session: Option<String>,
    /// Signing key (default: the newest that can sign)
    #[arg(long)]
    kid: Option<String>,
    /// Sign with this private key (EdDSA, PKCS#8, base64) instead of asking the registry
    #[arg(long, value_name = "FILE", requires = "kid")]
    private_key: Option<PathBuf>,
}

pub(crate) async fn run(project: Project, settings: &Settings, output: &Output) -> Exit {
    if let Project::Token(TokenArgs { private_key: Some(file), .. }) = &project {
        let secret = read_key(file)?;
        let Project::Token(token) = project else { unreachable!("matched above") };
        let (kid, mint) = (token.kid.clone().unwrap_or_default(), token.mint());
        let signed = PrivateKey::EdDsa(secret.bytes()).sign(&kid, &mint.claims(&token.project)?);
        show_token(output, &signed.context("the private key cannot sign")?);
        return done();
    }
    let registry = Registry::open(settings).await?;
    let code = act(project, &registry, output).await;
    registry.close().await;
    code
}

async fn act(project: Project, registry: &Registry, output: &Output) -> Exit {
    match project {
        Project::Add { project, key, origin } => {
            let (key, shown) = key.make()?;
            let change = Change::Add { key: key.clone(), origins: origin };
            registry.change(&project, change).await?;
            show_key(output, &project, &key, shown.as_ref());
        }
        Project::Rotate { project, reader_key: true, .. } => {
            let after = registry.change(&project, Change::ReaderKey).await?;
            output.show(&after, |_| format!("rotated the reader keys of {project}"));
        }
        Project::Rotate { project, key, reader_key: false } => {
            let (key, shown) = key.make()?;
            registry.change(&project, Change::AddKey { key: key.clone() }).await?;
            show_key(output, &project, &key, shown.as_ref());
        }
        Project::Revoke { project, kid } => {
            let after = registry.change(&project, Change::Revoke { kid: kid.clone() }).await?;
            output.show(&after, |after| match after["keys"].as_array().map_or(0, Vec::len) {
                0 => format!("revoked key {kid}; {project} has no key left and accepts no token"),
                _ => format!("revoked key {kid}"),
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
                    false => table(["PROJECT", "KEYS", "ORIGINS", "REGISTERED"], rows),
                }
            });
        }
        Project::Keys { project } => {
            let found = registry.list().await?;
            let found = found.as_array().into_iter().flatten().find(|one| one["project"] == project.as_str());
            let Some(found) = found else {
                bail!("project {project} is not registered; list projects with: towpath project list")
            };
            output.show(&found["keys"], |keys| {
                let text = |key: &Value, name: &str| key[name].as_str().unwrap_or("-").to_owned();
                let rows = keys
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|key| [text(key, "kid"), text(key, "alg"), text(key, "created_at")]);
                table(["KEY", "ALGORITHM", "CREATED"], rows)
            });
        }
        Project::Token(token) => show_token(output, &registry.mint(&token.project, &token.mint()).await?),
        Project::Remove { project, yes: false } => {
            output.line(&format!(
                "this removes {project} and its keys; its streams stay, and clients on this machine need no token \
                 for them; confirm with --yes"
            ));
            return Ok(ExitCode::from(3));
        }
        Project::Remove { project, yes: true } => {
            registry.change(&project, Change::Remove).await?;
            output.show(&json!({ "project": project, "removed": true }), |_| {
                format!("removed project {project}")
            });
        }
    }
    done()
}

/// Registers a project with a new key, if it is not registered yet. Answers the id of a key, and whether it is new.
pub(crate) async fn first_key(project: &str, settings: &Settings) -> anyhow::Result<(String, bool)> {
    let registry = Registry::open(settings).await?;
    let made = async {
        let listed = registry.list().await?;
        let known = listed.as_array().into_iter().flatten().find(|one| one["project"] == project);
        if let Some(known) = known {
            return Ok((known["keys"][0]["kid"].as_str().unwrap_or("none").to_owned(), false));
        }
        let (key, _) = KeyArgs { kid: None, algorithm: Algorithm::Hs256, key_file: None }.make()?;
        let change = Change::Add { key: key.clone(), origins: vec![] };
        registry.change(project, change).await?;
        Ok((key.kid, true))
    }
    .await;
    registry.close().await;
    made
}

impl KeyArgs {
    /// The key for the registry, and the part that is shown once.
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
            job: None,
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
    Secret::parse(&bare).with_context(|| format!("invalid key in {}", file.display()))
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
                format!("{first}\nprivate key, PKCS#8 in base64url, not stored; save it now: {value}")
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
