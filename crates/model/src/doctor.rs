//! The checks of `towpath doctor`.
//!
//! `db` collects the facts; this module evaluates them. Every finding that is not ok
//! carries the command that fixes it (O02).

use serde::Serialize;

use crate::health::Unhandled;

/// The severity of a finding, from ok to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem.
    Ok,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Works today, but will cause problems.
    Warn,
    /// Can lose data, or does not work.
    Fail,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, in one word.
    pub check: &'static str,
    /// The severity.
    pub level: Level,
    /// What was found.
    pub message: String,
    /// The command that fixes it.
    pub fix: Option<String>,
}

/// A gate as the database reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateFact {
    /// The config key.
    pub gate: String,
    /// Whether it is open.
    pub open: bool,
    /// Why its stored value is invalid, if it is.
    pub value_error: Option<String>,
}

/// Free space on the data's file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFact {
    /// The directory.
    pub path: String,
    /// Bytes free for an unprivileged writer.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
}

/// The installed schema compared with this binary's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemaFact {
    /// The newest migration applied, 0 for none.
    pub applied: i32,
    /// The newest migration this binary knows.
    pub known: i32,
    /// Whether the installed functions and views are this binary's.
    pub functions_current: bool,
    /// Objects that have changed since `migrate`, described.
    pub drift: Vec<String>,
}

/// An item that a loop has set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultFact {
    /// The loop.
    pub name: String,
    /// The item it could not process.
    pub item: String,
    /// PostgreSQL's error message.
    pub error: String,
    /// Number of attempts.
    pub times: i32,
    /// The deliveries that wait behind it.
    pub behind: Vec<String>,
}

/// Everything `doctor` checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// `server_version_num`, for example 150018.
    pub server_version_num: i32,
    /// PostgreSQL settings by name.
    pub settings: Vec<(String, String)>,
    /// The schema.
    pub schema: SchemaFact,
    /// Missing Towpath roles.
    pub roles_missing: Vec<String>,
    /// Towpath roles with attributes they must not have, described.
    pub roles_too_powerful: Vec<String>,
    /// Towpath roles that are members of another role, each with that role.
    pub roles_wider: Vec<(String, String)>,
    /// The login, if it is a superuser, and the unset settings that would restrict programs.
    pub superuser: Option<(String, Vec<&'static str>)>,
    /// Towpath functions that PUBLIC may execute.
    pub functions_open_to_public: Vec<String>,
    /// The gates.
    pub gates: Vec<GateFact>,
    /// Due jobs that no live worker runs.
    pub unhandled: Vec<Unhandled>,
    /// Items that loops have set aside and retry from time to time.
    pub loop_faults: Vec<FaultFact>,
    /// Database clock minus this machine's clock.
    pub clock_offset_ms: i64,
    /// Half the round trip of that measurement, which is its uncertainty.
    pub clock_uncertainty_ms: i64,
    /// Connections in use and allowed.
    pub connections: (i64, i64),
    /// Free space, where the data is on this machine.
    pub disk: Option<DiskFact>,
}

/// The oldest PostgreSQL that has what the schema uses (`unique nulls not distinct`).
pub const SERVER_MAJOR_MIN: i32 = 15;
/// Logs stay readable with clocks this far apart.
const CLOCK_OFFSET_MS_MAX: i64 = 2_000;
/// PostgreSQL stops when its disk is full, and WAL grows by gigabytes between checkpoints.
const DISK_FREE_BYTES_WARN: u64 = 5 << 30;
const DISK_FREE_BYTES_FAIL: u64 = 512 << 20;

/// Runs the checks in a fixed order, with one finding or more each.
pub fn diagnose(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![version(facts.server_version_num)];
    findings.extend(durability(&facts.settings));
    findings.extend(schema(&facts.schema));
    findings.extend(roles(facts));
    findings.extend(gates(&facts.gates));
    findings.extend(workers(facts));
    findings.extend(loops(facts));
    findings.push(clock(facts.clock_offset_ms, facts.clock_uncertainty_ms));
    findings.push(connections(facts.connections));
    findings.extend(facts.disk.as_ref().map(disk));
    findings
}

fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { check, level: Level::Ok, message: message.into(), fix: None }
}

fn bad(check: &'static str, level: Level, message: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { check, level, message: message.into(), fix: Some(fix.into()) }
}

fn version(server_version_num: i32) -> Finding {
    let (major, minor) = (server_version_num / 10_000, server_version_num % 10_000);
    if major < SERVER_MAJOR_MIN {
        return bad(
            "version",
            Level::Fail,
            format!("PostgreSQL {major} is too old; version {SERVER_MAJOR_MIN} or newer is required"),
            "upgrade the server, or unset DATABASE_URL to run a private one",
        );
    }
    ok("version", format!("PostgreSQL {major}.{minor}"))
}

/// Settings under which an acknowledged commit can be lost.
fn durability(settings: &[(String, String)]) -> Vec<Finding> {
    let lossy = |name: &str, value: &str| match (name, value) {
        ("fsync", "off") => Some("a power failure can corrupt the whole database"),
        ("full_page_writes", "off") => Some("a power failure can leave torn pages that cannot be repaired"),
        ("synchronous_commit", "off") => Some("a crash can lose acknowledged commits"),
        _ => None,
    };
    let mut findings: Vec<Finding> = settings
        .iter()
        .filter_map(|(name, value)| {
            let why = lossy(name, value)?;
            Some(bad(
                "durability",
                Level::Fail,
                format!("{name} is {value}: {why}"),
                format!("psql -c \"alter system set {name} = on\" -c 'select pg_reload_conf()'"),
            ))
        })
        .collect();
    if findings.is_empty() {
        findings.push(ok("durability", "acknowledged commits survive a crash"));
    }
    findings
}

fn schema(schema: &SchemaFact) -> Vec<Finding> {
    let SchemaFact { applied, known, functions_current, drift } = schema;
    if applied > known {
        return vec![bad(
            "schema",
            Level::Fail,
            format!("the schema is at version {applied}, but this binary knows only {known}"),
            "upgrade towpath to the release that migrated this database",
        )];
    }
    if applied < known || !functions_current {
        let what = if applied < known { "tables" } else { "functions" };
        return vec![bad(
            "schema",
            Level::Fail,
            format!("the schema is at version {applied} of {known}; its {what} are older than this binary"),
            "towpath migrate",
        )];
    }
    if drift.is_empty() {
        return vec![ok("schema", format!("version {applied}, unchanged since it was installed"))];
    }
    drift
        .iter()
        .map(|object| bad("schema", Level::Warn, object.clone(), "towpath migrate --reinstall"))
        .collect()
}

fn roles(facts: &Facts) -> Vec<Finding> {
    // Before the first migration there are no roles to check.
    if facts.schema.applied == 0 {
        return vec![];
    }
    let mut findings = vec![];
    for role in &facts.roles_missing {
        findings.push(bad(
            "roles",
            Level::Fail,
            format!("role {role} does not exist"),
            "towpath migrate --reinstall",
        ));
    }
    for power in &facts.roles_too_powerful {
        let role = power.split(' ').next().unwrap_or_default();
        findings.push(bad(
            "roles",
            Level::Fail,
            format!("role {power}"),
            format!("psql -c 'alter role {role} nosuperuser nocreaterole nocreatedb nobypassrls'"),
        ));
    }
    for (role, of) in &facts.roles_wider {
        findings.push(bad(
            "roles",
            Level::Fail,
            format!("role {role} is a member of {of} and has all its rights"),
            format!("psql -c 'revoke {of} from {role}'"),
        ));
    }
    if let Some((login, unset)) = facts.superuser.as_ref().filter(|(_, unset)| !unset.is_empty()) {
        findings.push(bad(
            "roles",
            Level::Warn,
            format!("DATABASE_URL connects as the superuser {login}, and programs run with all its rights"),
            format!("set {}, or give each program its own login: docs/guides/deploy.md", unset.join(", ")),
        ));
    }
    for function in &facts.functions_open_to_public {
        findings.push(bad(
            "roles",
            Level::Fail,
            format!("PUBLIC may execute {function}"),
            format!("psql -c 'revoke execute on function {function} from public'"),
        ));
    }
    if findings.is_empty() {
        findings.push(ok("roles", "roles have only their own rights; PUBLIC has none"));
    }
    findings
}

fn gates(gates: &[GateFact]) -> Vec<Finding> {
    gates
        .iter()
        .map(|GateFact { gate, open, value_error }| match (open, value_error) {
            (true, _) => ok("gates", format!("{gate} is open")),
            (false, None) => Finding {
                check: "gates",
                level: Level::Note,
                message: format!("{gate} is closed"),
                fix: Some(format!("towpath gate open {gate} --why …")),
            },
            (false, Some(problem)) => bad(
                "gates",
                Level::Warn,
                format!("{gate} is treated as closed because its value is invalid: {problem}"),
                format!("towpath gate open {gate} --why …"),
            ),
        })
        .collect()
}

fn workers(facts: &Facts) -> Vec<Finding> {
    if facts.schema.applied == 0 {
        return vec![];
    }
    if facts.unhandled.is_empty() {
        return vec![ok("workers", "live workers handle every job that is due")];
    }
    let missing = |one: &Unhandled| bad("workers", Level::Warn, one.in_words(), one.command());
    facts.unhandled.iter().map(missing).collect()
}

fn loops(facts: &Facts) -> Vec<Finding> {
    if facts.schema.applied == 0 {
        return vec![];
    }
    if facts.loop_faults.is_empty() {
        return vec![ok("loops", "no faults")];
    }
    let fault = |FaultFact { name, item, error, times, behind }: &FaultFact| {
        let error = error.lines().next().unwrap_or_default();
        let mut message = format!("{name} set aside {item} after {times} attempts: {error}");
        let mut advice = format!("fix the cause, then: towpath fault retry {name} {item:?}");
        if let Some(first) = behind.first() {
            message +=
                &format!("; {} of its ordering key wait behind it, the first is {first}", behind.len());
            advice += &format!("; towpath fault drop {name} {item:?} --why … sends them without it");
        }
        bad("loops", Level::Warn, message, advice)
    };
    facts.loop_faults.iter().map(fault).collect()
}

fn clock(offset_ms: i64, uncertainty_ms: i64) -> Finding {
    if offset_ms.abs() - uncertainty_ms > CLOCK_OFFSET_MS_MAX {
        return bad(
            "clock",
            Level::Warn,
            format!("the database clock differs from this machine's by {offset_ms} ms"),
            "run an NTP client on both machines (Debian: apt-get install systemd-timesyncd)",
        );
    }
    ok("clock", format!("differs from the database clock by {offset_ms} ms (±{uncertainty_ms} ms)"))
}

fn connections((used, allowed): (i64, i64)) -> Finding {
    if used * 10 > allowed * 9 {
        return bad(
            "connections",
            Level::Warn,
            format!("{used} of {allowed} connections are in use"),
            format!("psql -c 'alter system set max_connections = {}', then restart PostgreSQL", allowed * 2),
        );
    }
    ok("connections", format!("{used} of {allowed} in use"))
}

fn disk(disk: &DiskFact) -> Finding {
    let DiskFact { path, free_bytes, total_bytes } = disk;
    let message = format!("{} MiB of {} MiB free under {path}", free_bytes >> 20, total_bytes >> 20);
    let fix =
        format!("free disk space, or move the data to another disk: towpath up --data DIR (now {path})");
    match *free_bytes {
        free if free < DISK_FREE_BYTES_FAIL => bad("disk", Level::Fail, message, fix),
        free if free < DISK_FREE_BYTES_WARN => bad("disk", Level::Warn, message, fix),
        _ => ok("disk", message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Facts {
        let on = |name: &str| (name.to_owned(), "on".to_owned());
        Facts {
            server_version_num: 150_018,
            settings: vec![on("fsync"), on("full_page_writes"), on("synchronous_commit")],
            schema: SchemaFact { applied: 2, known: 2, functions_current: true, drift: vec![] },
            roles_missing: vec![],
            roles_too_powerful: vec![],
            roles_wider: vec![],
            superuser: None,
            functions_open_to_public: vec![],
            gates: vec![GateFact { gate: "g".into(), open: true, value_error: None }],
            unhandled: vec![],
            loop_faults: vec![],
            clock_offset_ms: 3,
            clock_uncertainty_ms: 1,
            connections: (5, 100),
            disk: Some(DiskFact { path: "d".into(), free_bytes: 50 << 30, total_bytes: 100 << 30 }),
        }
    }

    /// The findings that are not ok, as (check, level).
    fn complaints(facts: &Facts) -> Vec<(&'static str, Level)> {
        let findings = diagnose(facts);
        assert!(findings.iter().all(|f| (f.level == Level::Ok) == f.fix.is_none()), "a fix for each");
        findings.iter().filter(|f| f.level != Level::Ok).map(|f| (f.check, f.level)).collect()
    }

    /// One change to otherwise healthy facts.
    fn with(change: impl FnOnce(&mut Facts)) -> Vec<(&'static str, Level)> {
        let mut facts = healthy();
        change(&mut facts);
        complaints(&facts)
    }

    /// O02: a healthy installation has no findings.
    #[test]
    fn a_healthy_installation_has_no_complaints() {
        assert_eq!(complaints(&healthy()), []);
    }

    /// O02: each fault is found, alone, and named.
    #[test]
    fn each_fault_is_found_alone() {
        let set = |name: &'static str, value: &'static str| {
            with(move |f| {
                f.settings.iter_mut().for_each(|s| {
                    if s.0 == name {
                        value.clone_into(&mut s.1);
                    }
                });
            })
        };
        assert_eq!(set("fsync", "off"), [("durability", Level::Fail)]);
        assert_eq!(set("full_page_writes", "off"), [("durability", Level::Fail)]);
        assert_eq!(set("synchronous_commit", "off"), [("durability", Level::Fail)]);
        // `local` and `remote_apply` are choices about replicas, not losses.
        assert_eq!(set("synchronous_commit", "local"), []);
        assert_eq!(with(|f| f.server_version_num = 140_011), [("version", Level::Fail)]);
        assert_eq!(with(|f| f.schema.applied = 1), [("schema", Level::Fail)]);
        assert_eq!(with(|f| f.schema.applied = 3), [("schema", Level::Fail)]);
        assert_eq!(with(|f| f.schema.functions_current = false), [("schema", Level::Fail)]);
        assert_eq!(with(|f| f.schema.drift.push("x".into())), [("schema", Level::Warn)]);
        assert_eq!(with(|f| f.roles_missing.push("x".into())), [("roles", Level::Fail)]);
        assert_eq!(with(|f| f.roles_too_powerful.push("x is a superuser".into())), [("roles", Level::Fail)]);
        assert_eq!(with(|f| f.roles_wider.push(("a".into(), "b".into()))), [("roles", Level::Fail)]);
        let superuser = |unset| with(|f| f.superuser = Some(("postgres".into(), unset)));
        assert_eq!(superuser(vec!["worker_role"]), [("roles", Level::Warn)]);
        assert_eq!(superuser(vec![]), [], "every program has its own role");
        assert_eq!(with(|f| f.functions_open_to_public.push("x()".into())), [("roles", Level::Fail)]);
        assert_eq!(with(|f| f.gates[0].open = false), [("gates", Level::Note)]);
        let fault = FaultFact {
            name: "reap".into(),
            item: "1".into(),
            error: "out of range".into(),
            times: 2,
            behind: vec![],
        };
        assert_eq!(with(|f| f.loop_faults.push(fault)), [("loops", Level::Warn)]);
        assert_eq!(with(|f| f.clock_offset_ms = -5_000), [("clock", Level::Warn)]);
        assert_eq!(with(|f| f.connections = (95, 100)), [("connections", Level::Warn)]);
        assert_eq!(with(|f| f.disk.as_mut().unwrap().free_bytes = 1 << 30), [("disk", Level::Warn)]);
        assert_eq!(with(|f| f.disk.as_mut().unwrap().free_bytes = 1 << 20), [("disk", Level::Fail)]);
    }

    /// A slow network must not look like a wrong clock.
    #[test]
    fn an_uncertain_clock_is_not_accused() {
        let facts = |offset, uncertainty| Facts {
            clock_offset_ms: offset,
            clock_uncertainty_ms: uncertainty,
            ..healthy()
        };
        assert_eq!(complaints(&facts(2_500, 1_000)), []);
        assert_eq!(complaints(&facts(3_500, 1_000)), [("clock", Level::Warn)]);
    }
}
