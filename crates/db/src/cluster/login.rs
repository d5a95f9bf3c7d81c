//! The logins of the private PostgreSQL: one per program, a member of exactly the roles it needs.
//!
//! The superuser installs and administers. Long-running programs use their own login, so that no statement can
//! escalate: SET ROLE in a superuser's session can be reset, a login cannot. They have no password and connect only
//! through the socket, which only PostgreSQL's user and root can reach.

use tokio_postgres::Config;

use crate::connect::Address;
use crate::{Database, Error, limits};

/// A long-running program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// HTTP: acts for administrators and token holders.
    Server,
    /// Runs jobs.
    Worker,
    /// Sequences, routes and delivers events.
    Router,
    /// Runs maintenance.
    Maintainer,
}

impl Login {
    /// Its name on the private PostgreSQL.
    pub fn name(self) -> &'static str {
        match self {
            Login::Server => "towpath_server_login",
            Login::Worker => "towpath_worker_login",
            Login::Router => "towpath_router_login",
            Login::Maintainer => "towpath_maintainer_login",
        }
    }

    /// The roles it has on the private PostgreSQL.
    pub fn roles(self) -> &'static [&'static str] {
        match self {
            Login::Server => &["workflow_admin", "worker_service_user"],
            Login::Worker => &["worker_service_user"],
            Login::Router => &["towpath_router"],
            Login::Maintainer => &["towpath_maintainer"],
        }
    }
}

impl Database {
    /// The private PostgreSQL under a program's login, created if missing. Called as superuser, after the migration.
    pub async fn as_login(&self, login: Login) -> Result<Database, Error> {
        let client = self.client().await?;
        client.batch_execute(&make(login)).await?;
        let place = "select split_part(current_setting('unix_socket_directories'), ',', 1), \
                            current_setting('port')::integer, current_database()::text";
        let row = client.query_one(place, &[]).await?;
        let (directory, port, name): (String, i32, String) = (row.get(0), row.get(1), row.get(2));
        let mut config = Config::new();
        config.host_path(directory).port(u16::try_from(port).unwrap_or(5432)).dbname(name).user(login.name());
        config.connect_timeout(limits::CONNECT_WAIT_MAX).application_name("towpath");
        drop(client);
        let tls = self.address()?.tls.clone();
        self.again(Address { config, tls }).await
    }
}

/// Several processes may start at once; losing the race to create it is fine.
fn make(login: Login) -> String {
    let (name, roles) = (login.name(), login.roles().join(", "));
    format!(
        "do $$ begin create role {name} login; exception when duplicate_object or unique_violation then null; end $$;
         do $$ begin grant {roles} to {name}; exception when unique_violation or internal_error then null; end $$"
    )
}
