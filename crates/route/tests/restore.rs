//! Events carried to another cluster by dump and restore.

use std::path::PathBuf;
use std::process::{Command, Output};

use towpath_db::cluster::Binaries;
use towpath_route::Config;
use towpath_testkit::TestDb;
use towpath_testkit::database::{self, TestServer};

use crate::routing::{emit, jobs, start_role_with};

/// E03: a dump is restored into a cluster whose transaction numbers are lower. What had no position
/// gets one, what had one keeps it, new events go on behind, and nothing is routed twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_into_a_younger_cluster_loses_and_repeats_nothing() {
    if !program("pg_dump").exists() {
        println!("skipped: the chosen PostgreSQL came without pg_dump");
        return;
    }
    let old = TestDb::open().await;
    jobs(&old).await;
    // Far ahead of any fresh cluster.
    let client = old.client().await;
    let burn = "do $$ begin for i in 1..20000 loop perform pg_current_xact_id(); commit; end loop; end $$";
    client.batch_execute(burn).await.unwrap();
    emit(&old, 40).await;
    old.call("fn_event_sequence()").await;
    old.call("fn_route_worker_run('default', 20)").await;
    emit(&old, 30).await;
    assert_eq!(
        old.text("select count(*) from towpath.job").await,
        "20",
        "half is routed, 30 have no position"
    );

    let server = TestServer::start().await;
    let young = TestDb::restored(&server, &dump(&old.url()), restore).await;
    let xids = "select pg_current_xact_id()::text::bigint < (select max(xact_id::text::bigint) from towpath.event_outbox)";
    assert_eq!(young.text(xids).await, "true", "the cluster is younger than what it holds");
    emit(&young, 10).await;
    let role = start_role_with(&young, Config::default()).await;
    young.until("select count(*) from towpath.job", "80").await;
    emit(&young, 10).await;
    young.until("select count(*) from towpath.job", "90").await;
    let twice = "select count(*) - count(distinct source_ref) from towpath.job";
    assert_eq!(young.text(twice).await, "0");
    let dense =
        "select count(*) = max(position) and count(distinct event_id) = 90 from towpath.event_position";
    assert_eq!(young.text(dense).await, "true");
    let verified = young.call("fn_event_verify(true)").await;
    assert_eq!(verified["passed"], true, "{verified}");
    role.stop().await;
    drop(young);
    server.stop().await;
}

fn dump(url: &str) -> Vec<u8> {
    ran(Command::new(program("pg_dump")).args(["--format=custom", "--dbname", url]).output().unwrap()).stdout
}

fn restore(url: &str, dump: &std::path::Path) {
    ran(Command::new(program("pg_restore")).args(["--dbname", url]).arg(dump).output().unwrap());
}

/// Of the same release as the server: an older one refuses to read it.
fn program(name: &str) -> PathBuf {
    Binaries::find(database::programs().as_deref(), None).unwrap().dir.join(name)
}

fn ran(output: Output) -> Output {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}
