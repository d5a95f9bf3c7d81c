//! Collects the facts for `model::doctor`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use deadpool_postgres::Object as Client;
use towpath_model::doctor::{DiskFact, Facts, FaultFact, GateFact, SchemaFact};

use crate::answer::read_field;
use crate::loop_fault::LoopFault;
use crate::migrate::{self, Status};
use crate::{Database, Error};

/// The roles of install.sql.
const ROLES: [&str; 8] = [
    "towpath_owner",
    "workflow_admin",
    "towpath_producer",
    "worker_service_user",
    "towpath_router",
    "towpath_maintainer",
    "towpath_consumer",
    "towpath_observer",
];

impl Database {
    /// The facts about this database. The caller passes `disk`, because only it knows whether the data is on this
    /// machine.
    pub async fn inspect(&self, disk: Option<DiskFact>) -> Result<Facts, Error> {
        let client = self.client().await?;
        let status = migrate::status(&client).await?;
        let installed = status.applied > 0 && status.functions_installed;
        let (clock_offset_ms, clock_uncertainty_ms) = clock(&client).await?;
        Ok(Facts {
            server_version_num: number(&client, "select current_setting('server_version_num')::bigint")
                .await? as i32,
            settings: settings(&client).await?,
            unhandled: match installed && status.is_current() {
                true => self.queue_unhandled().await?,
                false => vec![],
            },
            loop_faults: if installed && status.is_current() { self.faults().await? } else { vec![] },
            gates: if installed { self.gates().await? } else { vec![] },
            schema: self.schema(&status, installed).await?,
            roles_missing: words(&client, ROLES_MISSING, &[&ROLES.as_slice()]).await?,
            roles_too_powerful: words(&client, ROLES_TOO_POWERFUL, &[&ROLES.as_slice()]).await?,
            roles_wider: roles_wider(&client).await?,
            superuser: words(&client, SUPERUSER, &[]).await?.pop().map(|login| (login, vec![])),
            functions_open_to_public: words(&client, FUNCTIONS_OPEN_TO_PUBLIC, &[]).await?,
            clock_offset_ms,
            clock_uncertainty_ms,
            connections: (
                number(
                    &client,
                    "select count(*) from pg_stat_activity where backend_type = 'client backend'",
                )
                .await?,
                number(&client, "select current_setting('max_connections')::bigint").await?,
            ),
            disk,
        })
    }

    async fn gates(&self) -> Result<Vec<GateFact>, Error> {
        let entries = self.config_list().await?.into_iter().filter(super::config::ConfigEntry::is_gate);
        Ok(entries
            .map(|entry| GateFact { open: entry.is_open(), gate: entry.key, value_error: entry.value_error })
            .collect())
    }

    /// The newest faults that are not dropped; more would bury the other findings.
    async fn faults(&self) -> Result<Vec<FaultFact>, Error> {
        let waiting =
            self.loop_fault_list(None, 20).await?.into_iter().filter(|fault| fault.state == "waiting");
        let fact = |fault: LoopFault| FaultFact {
            name: fault.name,
            item: fault.item,
            error: fault.error,
            times: fault.times,
            behind: fault.behind.iter().map(ToString::to_string).collect(),
        };
        Ok(waiting.map(fact).collect())
    }

    async fn schema(&self, status: &Status, installed: bool) -> Result<SchemaFact, Error> {
        let current = status.is_current();
        let drift = match installed && current {
            true => read_field(self.call("select towpath.fn_schema_drift()", &[]).await?, "drift")?,
            false => vec![],
        };
        Ok(SchemaFact {
            applied: status.applied,
            known: migrate::newest(),
            functions_current: status.functions_current,
            drift,
        })
    }
}

const ROLES_MISSING: &str =
    "select role from unnest($1::text[]) role where not exists (select 1 from pg_roles where rolname = role)";

const ROLES_TOO_POWERFUL: &str = "
    select rolname || ' is ' || concat_ws(', ',
        case when rolsuper then 'a superuser' end,
        case when rolcreaterole then 'allowed to create roles' end,
        case when rolcreatedb then 'allowed to create databases' end,
        case when rolbypassrls then 'above row security' end)
      from pg_roles
     where rolname = any ($1) and (rolsuper or rolcreaterole or rolcreatedb or rolbypassrls)";

const ROLES_WIDER: &str = "
    select m.rolname::text, g.rolname::text
      from pg_auth_members a join pg_roles m on m.oid = a.member join pg_roles g on g.oid = a.roleid
     where m.rolname = any ($1) order by 1, 2";

const SUPERUSER: &str = "select session_user::text from pg_roles where rolname = session_user and rolsuper";

const FUNCTIONS_OPEN_TO_PUBLIC: &str = "
    select p.oid::regprocedure::text
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname in ('towpath', 'comms')
       and (p.proacl is null or exists (select 1 from aclexplode(p.proacl) a where a.grantee = 0))";

async fn roles_wider(client: &Client) -> Result<Vec<(String, String)>, Error> {
    let rows = client.query(ROLES_WIDER, &[&ROLES.as_slice()]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

async fn settings(client: &Client) -> Result<Vec<(String, String)>, Error> {
    let names = ["fsync", "full_page_writes", "synchronous_commit"].as_slice();
    let sql = "select name, setting from pg_settings where name = any ($1) order by name";
    let rows = client.query(sql, &[&names]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// The database's clock compared with ours, at the middle of one round trip.
async fn clock(client: &Client) -> Result<(i64, i64), Error> {
    let sql = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
    let statement = client.prepare_cached(sql).await?;
    let started = Instant::now();
    let before = now_ms();
    let theirs: i64 = client.query_one(&statement, &[]).await?.get(0);
    let uncertainty = i64::try_from(started.elapsed().as_millis() / 2).unwrap_or(i64::MAX);
    Ok((theirs - before - uncertainty, uncertainty + 1))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

async fn number(client: &Client, sql: &str) -> Result<i64, Error> {
    Ok(client.query_one(sql, &[]).await?.get(0))
}

async fn words(
    client: &Client,
    sql: &str,
    params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<Vec<String>, Error> {
    Ok(client.query(sql, params).await?.iter().map(|row| row.get(0)).collect())
}
