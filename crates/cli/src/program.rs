//! The database rights of the long-running programs: worker, router, maintainer and server.
//!
//! On the private PostgreSQL each has its own login. On your own database each runs with the rights of the login
//! in `DATABASE_URL`, or of the role that a setting names.

use clap::Args;
use towpath_db::Database;
use towpath_db::cluster::Login;

use crate::settings::Settings;

/// The roles that programs switch to after connecting.
#[derive(Args, Debug, Clone)]
pub(crate) struct RoleSettings {
    /// Role the worker switches to after connecting, such as worker_service_user (default: the login's own)
    #[arg(long, value_name = "ROLE")]
    worker_role: Option<String>,
    /// Role the router switches to after connecting, such as towpath_router (default: the login's own)
    #[arg(long, value_name = "ROLE")]
    router_role: Option<String>,
    /// Role maintenance switches to after connecting, such as towpath_maintainer (default: the login's own)
    #[arg(long, value_name = "ROLE")]
    maintainer_role: Option<String>,
}

impl RoleSettings {
    fn of(&self, login: Login) -> Option<&str> {
        match login {
            Login::Worker => self.worker_role.as_deref(),
            Login::Router => self.router_role.as_deref(),
            Login::Maintainer => self.maintainer_role.as_deref(),
            // It needs two roles, and a session has only one.
            Login::Server => None,
        }
    }
}

/// The database with the rights of one program.
pub(crate) async fn database(all: &Database, login: Login, settings: &Settings) -> anyhow::Result<Database> {
    match (settings.roles.of(login), &settings.database_url) {
        (Some(role), _) => Ok(all.as_role(role).await?),
        (None, None) => Ok(all.as_login(login).await?),
        (None, Some(_)) => Ok(all.clone()),
    }
}

/// The database as each of the programs of `towpath up` sees it.
pub(crate) struct Programs {
    pub(crate) server: Database,
    pub(crate) worker: Database,
    pub(crate) router: Database,
    pub(crate) maintainer: Database,
}

impl Programs {
    pub(crate) async fn open(all: &Database, settings: &Settings) -> anyhow::Result<Programs> {
        Ok(Programs {
            server: database(all, Login::Server, settings).await?,
            worker: database(all, Login::Worker, settings).await?,
            router: database(all, Login::Router, settings).await?,
            maintainer: database(all, Login::Maintainer, settings).await?,
        })
    }

    pub(crate) fn close(&self) {
        [&self.server, &self.worker, &self.router, &self.maintainer].into_iter().for_each(Database::close);
    }
}

/// The unset settings that would restrict a program to less than the login of `DATABASE_URL`.
pub(crate) fn roles_unset(settings: &Settings) -> Vec<&'static str> {
    if settings.database_url.is_none() {
        return vec![];
    }
    let known = [
        (Login::Worker, "worker_role"),
        (Login::Router, "router_role"),
        (Login::Maintainer, "maintainer_role"),
    ];
    known.into_iter().filter(|(login, _)| settings.roles.of(*login).is_none()).map(|(_, name)| name).collect()
}
