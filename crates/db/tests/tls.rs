//! TLS to a real server with a certificate of our own making.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use towpath_db::Database;
use towpath_db::cluster::{Cluster, Config, Durability};
use towpath_testkit::database::scratch;

/// A server that takes TLS and nothing else on its port, and the file of its authority.
struct Secured {
    cluster: Cluster,
    authority: String,
    address: String,
}

async fn secured(dir: &Path) -> Secured {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = Config {
        data: dir.to_owned(),
        port: Some(port),
        durability: Durability::Throwaway,
        ..Default::default()
    };
    let cluster = Cluster::start(&config).await.unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let pgdata = dir.join("postgres");
    give(&pgdata, "server.crt", &certificate.pem());
    give(&pgdata, "server.key", &key.serialize_pem());
    give(&pgdata, "pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n");
    let ca = dir.join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let (client, connection) =
        tokio_postgres::connect(&socket_url(&pgdata, port), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("alter system set ssl = on").await.unwrap();
    client.batch_execute("select pg_reload_conf()").await.unwrap();
    let address = cluster.url().replace("127.0.0.1", "localhost");
    Secured { cluster, authority: ca.display().to_string(), address }
}

fn socket_url(pgdata: &Path, port: u16) -> String {
    format!("postgresql://postgres@/postgres?host={}&port={port}", pgdata.display())
}

/// A file of the directory's owner, closed to others.
fn give(pgdata: &Path, name: &str, text: &str) {
    let (path, owner) = (pgdata.join(name), std::fs::metadata(pgdata).unwrap());
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// O01: a real server behind TLS: encrypted when asked, verified when asked, refused when
/// it cannot prove who it is.
#[tokio::test]
async fn tls_means_what_psql_users_expect() {
    let dir = scratch("towpath-test-tls-");
    let Secured { cluster, authority, address } = secured(&dir).await;
    let connect = async |options: &str| {
        Database::connect(&format!("{address}?{options}"))
            .await
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    // The server takes no connection without TLS; it may still be reloading.
    while connect("sslmode=disable").await.is_ok() {
        tokio::task::yield_now().await;
    }
    connect("sslmode=prefer").await.unwrap();
    connect("sslmode=require").await.unwrap();
    connect(&format!("sslmode=verify-full&sslrootcert={authority}")).await.unwrap();
    let database = Database::connect(&format!("{address}?sslmode=require")).await.unwrap();
    towpath_db::job::Listener::open(&database).await.expect("wake-ups come over TLS too");
    let unknown = connect("sslmode=verify-full").await.unwrap_err();
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    let by_number = address.replace("localhost", "127.0.0.1");
    let wrong_name = Database::connect(&format!("{by_number}?sslmode=verify-full&sslrootcert={authority}"))
        .await
        .map(|_| ());
    assert!(wrong_name.unwrap_err().to_string().contains("not valid for name"), "the name is checked");
    let missing = connect("sslmode=verify-full&sslrootcert=/no/such/file").await.unwrap_err();
    assert!(missing.contains("sslrootcert /no/such/file"), "{missing}");
    cluster.stop().await;
    std::fs::remove_dir_all(dir).unwrap();
}
