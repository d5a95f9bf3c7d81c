//! A real mail server: the npm package `smtp-server`, with TLS both ways and a mailbox per
//! recipient. `mail/server.js` says how the recipient's name decides what happens to a mail.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

use crate::database::scratch;
use crate::victim::Victim;
use crate::wait::until;

/// One exact version, so that runs are repeatable. Newer ones need a newer Node than Debian has.
const VERSION: &str = "3.14.0";
const PROGRAM: &str = include_str!("mail/server.js");

/// A running mail server. Dropping it kills it.
pub struct MailServer {
    dir: PathBuf,
    /// The port with implicit TLS.
    pub implicit: u16,
    /// The port with STARTTLS.
    pub starttls: u16,
    /// The port without TLS.
    pub plain: u16,
    process: Victim,
}

impl MailServer {
    /// Starts one with a certificate for `localhost`, signed by its own authority.
    pub async fn start() -> MailServer {
        let package = package();
        let dir = scratch("towpath-mail-");
        certificates(&dir);
        std::fs::write(dir.join("server.js"), PROGRAM).expect("the directory is ours");
        let mut command = Command::new("node");
        command.arg("server.js").args(["key.pem", "cert.pem", "mailboxes"]).current_dir(&dir);
        command.env("NODE_PATH", package.join("node_modules")).stdin(Stdio::piped());
        let process = Victim::spawn(command);
        let line = process.wait_for_line("\"listening\"").await;
        let ports: Value = serde_json::from_str(&line).expect("the program says JSON");
        let port = |name: &str| ports[name].as_u64().and_then(|port| port.try_into().ok()).expect("a port");
        let (implicit, starttls, plain) = (port("implicit"), port("starttls"), port("plain"));
        MailServer { dir, implicit, starttls, plain, process }
    }

    /// The certificate of its authority.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// A URL with implicit TLS, as its only user.
    pub fn smtps(&self) -> String {
        format!("smtps://towpath:p%40ss%2Fword@localhost:{}", self.implicit)
    }

    /// A URL with STARTTLS, as its only user.
    pub fn smtp(&self) -> String {
        format!("smtp://towpath:p%40ss%2Fword@localhost:{}", self.starttls)
    }

    /// The mails in a recipient's mailbox, oldest first.
    pub fn mailbox(&self, recipient: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.join("mailboxes").join(recipient));
        let mut files: Vec<PathBuf> = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "eml"))
            .collect();
        files.sort();
        files.iter().map(|file| std::fs::read_to_string(file).expect("a mail is text here")).collect()
    }

    /// Waits until a mailbox holds at least `wanted` mails.
    pub async fn until_mails(&self, recipient: &str, wanted: usize) -> Vec<String> {
        let what = format!("{wanted} mails for {recipient}");
        until(what, async || self.mailbox(recipient), |mails| mails.len() >= wanted).await
    }

    /// The attempts to deliver a mail to a recipient.
    pub fn asked(&self, recipient: &str) -> Vec<Value> {
        let events = self.process.lines().into_iter().filter_map(|line| serde_json::from_str(&line).ok());
        events.filter(|event: &Value| event["event"] == "asked" && event["to"] == recipient).collect()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The package, fetched once per machine into the temporary directory. Several test processes
/// may do it at once: each fetches into its own directory, and the first to rename it wins.
fn package() -> PathBuf {
    let done = std::env::temp_dir().join(format!("towpath-smtp-server-{VERSION}"));
    if !done.exists() {
        let fresh = scratch("towpath-smtp-server-");
        let output = Command::new("npm")
            .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
            .arg(&fresh)
            .arg(format!("smtp-server@{VERSION}"))
            .output()
            .unwrap_or_else(|error| panic!("npm: {error}"));
        assert!(output.status.success(), "npm: {}", String::from_utf8_lossy(&output.stderr));
        if std::fs::rename(&fresh, &done).is_err() {
            let _ = std::fs::remove_dir_all(&fresh);
        }
    }
    done
}

/// `ca.pem`, and `cert.pem` with `key.pem` signed by it.
fn certificates(dir: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key"));
    let authority = authority.expect("an authority signs itself");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &authority).expect("an authority signs");
    let write =
        |name: &str, text: String| std::fs::write(dir.join(name), text).expect("the directory is ours");
    write("ca.pem", authority.pem());
    write("cert.pem", certificate.pem());
    write("key.pem", key.serialize_pem());
}
