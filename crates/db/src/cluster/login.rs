//! The logins of the private PostgreSQL: one for each program, a member of the roles that it needs and no more.
//!
//! Its superuser installs and administers. Programs that run on log in under their own name, so that no
//! statement takes them further: SET ROLE of a superuser's session could be taken back, a login cannot. They
//! have no password and enter by the socket alone, which only PostgreSQL's user and root can reach.

use tokio_postgres::Config;

use crate::{Database, Error, limits};

/// A program that runs on, as the database knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// HTTP: acts for administrators and for the holders of tokens.
    Server,
    /// Runs jobs.
    Worker,
    /// Numbers and routes events, and delivers them.
    Router,
    /// Keeps the queue in shape.
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

    /// The roles it needs: on the private PostgreSQL it has exactly these.
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
    /// The private PostgreSQL under the login of a program, which is made if it is not there. Called on its
    /// superuser's database, after the migration.
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
        self.again(config).await
    }
}

/// Several processes may start at once, so losing the race to create it is fine.
fn make(login: Login) -> String {
    let (name, roles) = (login.name(), login.roles().join(", "));
    format!(
        "do $$ begin create role {name} login; exception when duplicate_object or unique_violation then null; end $$;
         do $$ begin grant {roles} to {name}; exception when unique_violation or internal_error then null; end $$"
    )
}
