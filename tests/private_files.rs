//! Everything a server writes is closed to other users: keys that sign tokens, passwords and
//! data are in it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use towpath_testkit::victim::Victim;

use crate::towpath::{PROGRAM, Place};

/// Starts the program with a permissive umask.
async fn start(place: &Place, umask: &str, arguments: &str) -> Victim {
    let mut command = Command::new("sh");
    let script = format!("umask {umask} && exec \"$0\" {arguments}");
    command.args(["-c", &script, PROGRAM]).current_dir(&place.dir).env_remove("DATABASE_URL");
    command.env("TOWPATH_LISTEN", format!("127.0.0.1:{}", place.port));
    let victim = Victim::spawn(command);
    victim.wait_for_line("towpath is ready").await;
    victim
}

/// Creates streams, a project with a key and a session, so that all of them are on disk.
async fn use_it(place: &Place, project: &str) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://127.0.0.1:{}/v1/stream/notes", place.port);
    let put = http.put(&url).header("content-type", "text/plain").body("one").send().await.unwrap();
    assert!(put.status().is_success(), "{put:?}");
    let key = place.run(&["project", "add", project]);
    assert!(key.status.success(), "{}", String::from_utf8_lossy(&key.stderr));
}

/// A directory and every file and directory below it.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path).unwrap() {
            all.extend(below(&entry.unwrap().path()));
        }
    }
    all
}

/// What others may do with anything in the data directory: nothing; only root's data directory itself
/// lets PostgreSQL's user through.
fn open_to_others(place: &Place) -> Vec<String> {
    let is_root = nix::unistd::geteuid().is_root();
    let mut found = Vec::new();
    for path in below(&place.data()) {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let allowed = if path == place.data() && is_root { 0o711 } else { 0o700 };
        if !meta.is_symlink() && meta.mode() & 0o777 & !allowed != 0 {
            found.push(format!("{} {:o}", path.display(), meta.mode() & 0o777));
        }
    }
    found
}

/// S06: a server that has been used, killed and started again leaves nothing that others can read, whatever the
/// mask of the user who starts it.
#[tokio::test]
async fn what_a_server_writes_is_closed_to_others() {
    for umask in ["000", "022"] {
        let place = Place::new();
        for project in ["shop", "store"] {
            let mut server = start(&place, umask, "serve").await;
            use_it(&place, project).await;
            let names: Vec<PathBuf> = below(&place.data());
            for name in ["server.json", "streams/LOCK", "streams/VERSION"] {
                assert!(names.contains(&place.data().join(name)), "{name} is not in {names:?}");
            }
            assert!(names.iter().any(|path| path.extension().is_some_and(|it| it == "log")), "{names:?}");
            assert_eq!(open_to_others(&place), Vec::<String>::new(), "umask {umask}");
            server.kill().await;
        }
        let mut server = start(&place, umask, "serve").await;
        server.terminate();
        server.wait_exit().await;
        assert!(place.data().join("streams/checkpoint").exists());
        assert_eq!(open_to_others(&place), Vec::<String>::new(), "umask {umask}, after its end");
    }
}

/// S06: the private PostgreSQL's directory, its log, its lock and its password are closed too.
#[tokio::test]
async fn what_a_private_cluster_writes_is_closed_to_others() {
    let place = Place::new();
    let port = Place::new().port;
    let server = start(&place, "000", &format!("up --postgres-port {port}")).await;
    let names = below(&place.data());
    for name in ["towpath.lock", "postgres.log", "server.json"] {
        assert!(names.contains(&place.data().join(name)), "{name} is not in {names:?}");
    }
    assert_eq!(open_to_others(&place), Vec::<String>::new());
    drop(server);
}

/// S06: files of a store that was made with wider modes are closed at the next start, and that is said; a data
/// directory with other things in it keeps its mode.
#[tokio::test]
async fn what_was_open_to_others_is_closed_at_the_start() {
    let place = Place::new();
    let mut server = start(&place, "022", "serve").await;
    use_it(&place, "shop").await;
    server.kill().await;
    for path in below(&place.data()) {
        let mode = if path.is_dir() { 0o777 } else { 0o666 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let server = start(&place, "022", "serve").await;
    server.wait_for_line("was readable by other users").await;
    server.wait_for_line("the stream store in").await;
    assert_eq!(open_to_others(&place), Vec::<String>::new());
    drop(server);

    let shared = Place::new();
    std::fs::create_dir(shared.data()).unwrap();
    std::fs::write(shared.data().join("somebody's file"), "").unwrap();
    std::fs::set_permissions(shared.data(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = start(&shared, "022", "serve").await;
    server.wait_for_line("is readable by other users").await;
    assert_eq!(std::fs::metadata(shared.data()).unwrap().mode() & 0o777, 0o755);
    assert_eq!(std::fs::metadata(shared.data().join("streams")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(shared.data().join("server.json")).unwrap().mode() & 0o777, 0o600);
    drop(server);
}

/// S06: a store that others can write to and that is somebody else's is refused, with what to do.
#[tokio::test]
async fn a_store_of_somebody_else_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let mut command = place.command_as("postgres", &["serve"]);
    std::fs::create_dir_all(place.data().join("streams")).unwrap();
    for path in [place.data(), place.data().join("streams")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("change its owner to the user who runs towpath"),
        "{said}"
    );
}
