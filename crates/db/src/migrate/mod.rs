//! Migrates a database to this binary's schema.
//!
//! Everything runs in one transaction under one advisory lock: numbered migrations run once, and files of functions and
//! views are reinstalled whenever their text changes. It executes the text that [`script`] prints, so that `towpath
//! migrate --dump-sql | psql` gives the same database.

mod files;
mod template;

use deadpool_postgres::Object;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient};

use crate::connect::connect_once;
use crate::{Database, Error};
pub use files::{INSTALL, MIGRATIONS, Migration, SOURCES, Source};

/// The advisory lock of the migrator: the bytes of "towpath" as a number.
pub(crate) const LOCK_KEY: i64 = 0x74_6f77_7061_7468;
/// The release that installs; recorded with everything it installs.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The installed schema compared with this binary's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The newest migration applied, 0 for none.
    pub applied: i32,
    /// The newest migration this binary knows.
    pub known: i32,
    /// Names of pending migrations.
    pub pending: Vec<String>,
    /// Whether any functions are installed.
    pub functions_installed: bool,
    /// Whether the installed functions and views are this binary's.
    pub functions_current: bool,
    /// The release that installed them.
    pub release: Option<String>,
}

impl Status {
    /// Whether the schema is up to date.
    pub fn is_current(&self) -> bool {
        self.applied == self.known && self.functions_current
    }
}

/// The mode of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Apply what is missing.
    Apply,
    /// Apply what is missing, then roll it back.
    DryRun,
    /// Reinstall functions, views, roles and grants even if they look complete.
    Reinstall,
}

/// What a run did, or would have done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The newest migration applied before.
    pub from: i32,
    /// And after.
    pub to: i32,
    /// The migrations that ran.
    pub migrations: Vec<String>,
    /// Whether functions and views were reinstalled.
    pub reinstalled: bool,
    /// Functions that are no longer in any file.
    pub retired: Vec<String>,
    /// A newer release installed the functions, so they were kept.
    pub kept_newer_release: Option<String>,
}

impl Report {
    /// Whether the run changed anything.
    pub fn changed(&self) -> bool {
        !self.migrations.is_empty() || self.reinstalled
    }
}

/// The number of the newest migration this binary knows.
pub fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// Migrates the database at `url`.
pub async fn run(url: &str, mode: Mode) -> Result<Report, Error> {
    run_on(&mut connect_once(url).await?, mode).await
}

async fn run_on(client: &mut Client, mode: Mode) -> Result<Report, Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&lock_sql()).await?;
    let before = ledger(&transaction).await?;
    before.refuse_unknown()?;
    let report = before.plan(mode);
    if !report.changed() {
        return Ok(report);
    }
    let retired = execute(&transaction, &report).await.map_err(explain)?;
    match mode {
        Mode::DryRun => transaction.rollback().await?,
        Mode::Apply | Mode::Reinstall => transaction.commit().await?,
    }
    Ok(Report { retired, ..report })
}

/// The installed schema; every Towpath role may read it.
pub async fn status(client: &Object) -> Result<Status, Error> {
    let sql = "select to_regprocedure('towpath.fn_schema_status()') is not null, \
                      to_regclass('towpath.schema_migration') is not null";
    let row = client.query_one(sql, &[]).await?;
    let (has_function, has_table): (bool, bool) = (row.get(0), row.get(1));
    let answer: serde_json::Value = match (has_function, has_table) {
        (true, _) => client.query_one("select towpath.fn_schema_status()", &[]).await?.get(0),
        (false, true) => {
            let sql = "select jsonb_build_object('version', coalesce(max(version), 0)) from towpath.schema_migration";
            client.query_one(sql, &[]).await?.get(0)
        }
        (false, false) => serde_json::json!({ "version": 0 }),
    };
    let applied = i32::try_from(answer["version"].as_i64().unwrap_or_default()).unwrap_or(i32::MAX);
    Ok(Status {
        applied,
        known: newest(),
        pending: pending(applied).map(|migration| migration.name.to_owned()).collect(),
        functions_installed: has_function,
        functions_current: answer["checksum"] == checksum_of_sources(),
        release: answer["release"].as_str().map(ToOwned::to_owned),
    })
}

impl Database {
    /// Migrates this database. The login must be a superuser, or the owner of the schema.
    pub async fn migrate(&self, mode: Mode) -> Result<Report, Error> {
        let mut client = self.client().await?;
        run_on(&mut client, mode).await
    }

    /// The installed schema compared with this binary's.
    pub async fn schema_status(&self) -> Result<Status, Error> {
        status(&self.client().await?).await
    }

    /// Refuses a schema that this binary does not support. Programs call it at startup.
    pub async fn require_schema(&self) -> Result<(), Error> {
        let status = self.schema_status().await?;
        if status.applied > status.known {
            return Err(newer(&status));
        }
        if status.applied < status.known {
            return Err(Error::Unsupported(format!(
                "the schema is at version {}, but this binary needs {}; run: towpath migrate",
                status.applied, status.known
            )));
        }
        Ok(())
    }
}

/// The whole installation after migration `from` as one SQL text, to run by other means. [`run`] executes the same.
pub fn script(from: i32) -> String {
    let mut sql = format!("-- Towpath {RELEASE}: schema {from} to {}\nbegin;\n{}\n", newest(), lock_sql());
    sql.push_str(&steps_sql(from));
    sql.push_str(&record_sql());
    sql.push_str("\ncommit;\n");
    sql
}

/// The content of the ledger tables, read under the lock.
struct Ledger {
    applied: Vec<(i32, String, String)>,
    release: Option<String>,
    checksum: Option<String>,
}

async fn ledger(client: &impl GenericClient) -> Result<Ledger, Error> {
    let exists = "select to_regclass('towpath.schema_release') is not null";
    if !client.query_one(exists, &[]).await?.get::<_, bool>(0) {
        return Ok(Ledger { applied: vec![], release: None, checksum: None });
    }
    let sql = "select version, name, checksum from towpath.schema_migration order by version";
    let rows = client.query(sql, &[]).await.map_err(|error| explain(error.into()))?;
    let release = client.query_opt("select release, checksum from towpath.schema_release", &[]).await?;
    Ok(Ledger {
        applied: rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
        release: release.as_ref().map(|row| row.get(0)),
        checksum: release.as_ref().map(|row| row.get(1)),
    })
}

impl Ledger {
    fn version(&self) -> i32 {
        self.applied.last().map_or(0, |(version, ..)| *version)
    }

    /// A newer schema, or a migration whose text has changed since it ran.
    fn refuse_unknown(&self) -> Result<(), Error> {
        for (version, name, checksum) in &self.applied {
            let Some(ours) = MIGRATIONS.iter().find(|ours| ours.version == *version) else {
                return Err(newer(&Status {
                    applied: self.version(),
                    known: newest(),
                    pending: vec![],
                    functions_installed: true,
                    functions_current: false,
                    release: self.release.clone(),
                }));
            };
            if *checksum != checksum_of([ours.sql]) {
                return Err(Error::Unsupported(format!(
                    "migration {name} is not the one that was applied to this database; \
                     use the release that applied it, or a fresh database"
                )));
            }
        }
        Ok(())
    }

    fn plan(&self, mode: Mode) -> Report {
        let from = self.version();
        let migrations: Vec<String> = pending(from).map(|migration| migration.name.to_owned()).collect();
        let newer = self.release.clone().filter(|release| is_newer(release) && migrations.is_empty());
        let stale = self.checksum.as_deref() != Some(checksum_of_sources().as_str());
        Report {
            from,
            to: from.max(newest()),
            reinstalled: newer.is_none() && (stale || mode == Mode::Reinstall || !migrations.is_empty()),
            migrations,
            retired: vec![],
            kept_newer_release: newer,
        }
    }
}

async fn execute(client: &impl GenericClient, report: &Report) -> Result<Vec<String>, Error> {
    client.batch_execute(&steps_sql(report.from)).await?;
    let retired = client.query(&retired_sql(), &[]).await?.iter().map(|row| row.get(0)).collect();
    client.batch_execute(&record_sql()).await?;
    Ok(retired)
}

fn lock_sql() -> String {
    format!("select pg_advisory_xact_lock({LOCK_KEY});")
}

/// Roles and ledger, the missing migrations, then every function and view.
fn steps_sql(from: i32) -> String {
    let mut sql = format!("set local client_min_messages = warning;\n{INSTALL}\n");
    for migration in pending(from) {
        let Migration { version, name, sql: body } = migration;
        let checksum = checksum_of([*body]);
        sql.push_str(&format!(
            "\n-- migration {name}\n{body}\ninsert into towpath.schema_migration (version, name, checksum, release) \
             values ({version}, '{name}', '{checksum}', '{RELEASE}');\n"
        ));
    }
    // Views cannot change their columns in place, and only other views depend on them, so all are dropped and recreated.
    sql.push_str(DROP_VIEWS);
    sql.push_str(REVOKE_GRANTS);
    for source in SOURCES.iter() {
        sql.push_str(&format!("\n-- {}\n{}\n", source.path, source.sql));
    }
    sql
}

/// Drops functions that are no longer in any file, then records the installed objects.
fn record_sql() -> String {
    format!(
        "do $$\ndeclare\n    _function text;\nbegin\n    for _function in {} loop\n        \
         execute 'drop function ' || _function;\n    end loop;\nend;\n$$;\n\
         select towpath._schema_record('{RELEASE}', '{}');",
        retired_sql(),
        checksum_of_sources()
    )
}

const DROP_VIEWS: &str = "
do $$
declare
    _views text := (select string_agg(format('%I.%I', n.nspname, c.relname), ', ')
                      from pg_class c join pg_namespace n on n.oid = c.relnamespace
                     where n.nspname in ('towpath', 'comms') and c.relkind = 'v'
                       and pg_get_userbyid(c.relowner) = 'towpath_owner');
begin
    if _views is not null then
        execute 'drop view ' || _views;
    end if;
end;
$$;
";

/// Replacing a function keeps its grants, so all are revoked first, and the files grant again. The savepoint gives these
/// changes a transaction number of their own, or [`retired_sql`] would take every revoked function for a reinstalled one.
const REVOKE_GRANTS: &str = "
savepoint revoked;
do $$
declare
    _grant record;
begin
    for _grant in
        select p.oid::regprocedure as function, string_agg(distinct a.grantee::regrole::text, ', ') as roles
          from pg_proc p join pg_namespace n on n.oid = p.pronamespace, aclexplode(p.proacl) a
         where n.nspname in ('towpath', 'comms') and pg_get_userbyid(p.proowner) = 'towpath_owner'
           and a.grantee not in (0, p.proowner)
         group by p.oid loop
        execute format('revoke all on function %s from %s', _grant.function, _grant.roles);
    end loop;
end;
$$;
release savepoint revoked;
";

/// Functions that this transaction did not write and no migration creates: they were removed from their file.
/// Reinstalling writes the `pg_proc` row of every function in a file.
fn retired_sql() -> String {
    let made = |migration: &Migration| -> Vec<String> {
        let lines = migration.sql.lines().filter_map(|line| line.strip_prefix("create function towpath."));
        lines.filter_map(|rest| Some(format!("'{}'", rest.split_once('(')?.0))).collect()
    };
    let kept: Vec<String> = MIGRATIONS.iter().flat_map(made).collect();
    format!(
        "select p.oid::regprocedure::text
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname in ('towpath', 'comms') and pg_get_userbyid(p.proowner) = 'towpath_owner'
       and p.xmin::text::bigint <> pg_current_xact_id()::text::bigint % 4294967296
       and p.proname <> all (array[{}])
     order by 1",
        kept.join(", ")
    )
}

fn pending(applied: i32) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(move |migration| migration.version > applied)
}

fn checksum_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum of everything this binary installs.
pub fn checksum() -> String {
    let migrations = MIGRATIONS.iter().map(|migration| migration.sql);
    checksum_of(migrations.chain([checksum_of_sources().as_str()]))
}

fn checksum_of_sources() -> String {
    let files = SOURCES.iter().flat_map(|source| [source.path, source.sql.as_ref()]);
    checksum_of([INSTALL].into_iter().chain(files))
}

/// Whether a release is newer than this binary's. Both have the form `major.minor.patch`.
fn is_newer(release: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
    };
    numbers(release) > numbers(RELEASE)
}

fn newer(status: &Status) -> Error {
    Error::Unsupported(format!(
        "the schema is at version {} (installed by towpath {}), but this binary knows only {}; upgrade towpath",
        status.applied,
        status.release.as_deref().unwrap_or("of a newer release"),
        status.known
    ))
}

/// Adds the fix to the two errors that an operator can fix.
fn explain(error: Error) -> Error {
    let Error::Postgres(cause) = &error else { return error };
    match cause.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Error::Unsupported(format!(
            "{error}; migrating requires a user who may create roles and schemas, or a member of towpath_owner"
        )),
        Some(&SqlState::DEPENDENT_OBJECTS_STILL_EXIST) => Error::Unsupported(format!(
            "{error}; drop your own objects that use Towpath's views or functions, migrate, and recreate them"
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version as usize, index + 1);
            assert!(migration.name.starts_with(&format!("{:04}_", migration.version)));
        }
    }

    #[test]
    fn releases_compare_by_number() {
        assert!(is_newer("99.0.0"));
        assert!(!is_newer(RELEASE));
        assert!(!is_newer("0.0.9"));
    }

    /// A length before each text keeps ("ab", "c") and ("a", "bc") apart.
    #[test]
    fn checksums_depend_on_where_a_text_ends() {
        assert_ne!(checksum_of(["ab", "c"]), checksum_of(["a", "bc"]));
    }
}
