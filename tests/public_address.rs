//! What a server on a public address requires.

use towpath_testkit::victim::Victim;

use crate::towpath::Place;

/// F09: a public address is refused until a project has a key; then every request needs a token. Keys created
/// without a server count.
#[tokio::test]
async fn a_public_address_needs_a_key() {
    let place = Place::new();
    let public = format!("0.0.0.0:{}", place.port);
    let refused = place.run(&["serve", "--listen", &public]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("towpath project add"), "{why}");
    assert!(!place.data().exists(), "a refused start writes nothing");
    place.ok(&["project", "add", "shop"]);
    let token = place.ok(&["project", "token", "shop", "--scope", "write"]);
    let mut server = Victim::spawn(place.command(&["serve", "--listen", &public]));
    server.wait_for_line("ready at").await;
    assert!(!place.run(&["stream", "list"]).status.success(), "the default project is closed too");
    assert!(!place.run(&["stream", "--project", "shop", "list"]).status.success());
    place.ok(&["--token", token.trim(), "stream", "--project", "shop", "create", "a"]);
    place.ok(&["project", "rotate", "shop", "--kid", "k2"]);
    server.terminate();
    server.wait_exit().await;
}

/// O03: a dashboard on a public address does not start with a password that can be guessed.
#[test]
fn a_public_dashboard_needs_a_strong_password() {
    let place = Place::new();
    let public = format!("0.0.0.0:{}", place.port);
    place.ok(&["project", "add", "shop"]);
    for (admin, viewer, named) in [
        ("secret", "correct horse battery", "TOWPATH_ADMIN_PASSWORD"),
        ("correct horse battery", "aaaaaaaaaaaaaaaa", "TOWPATH_VIEWER_PASSWORD"),
    ] {
        let mut serve = place.command(&["serve", "--listen", &public]);
        serve.env("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none");
        serve.env("TOWPATH_ADMIN_PASSWORD", admin).env("TOWPATH_VIEWER_PASSWORD", viewer);
        let refused = serve.output().unwrap();
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && why.contains(named), "{why}");
        assert!(!why.contains("ready at"), "{why}");
    }
}
