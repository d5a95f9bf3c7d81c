//! `towpath payload`: data by reference, encrypted and erased, as an operator types it; and logs without credentials.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::json;
use towpath_db::job::NewJob;
use towpath_testkit::victim::Victim;

use crate::jobs_cli::{Shell, says};

/// Q25: put, get, rotate and erase, with a master key that only its owner can read; every use of a key is audited.
#[tokio::test]
async fn payloads_are_stored_encrypted_and_erased() {
    let shell = Shell::open().await;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, master) = (path("data.json"), path("master.key"));
    std::fs::write(&data, r#"{"role": "user", "content": "hello"}"#).unwrap();
    std::fs::write(&master, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let with_key = |arguments: &[&str]| -> Command {
        let mut command = shell.command(arguments);
        command.env("TOWPATH_PAYLOAD_MASTER_KEY_FILE", &master);
        command
    };
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let words =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), words)
    };

    let stored = shell.ok(&["payload", "put", &data]);
    assert_eq!(shell.ok(&["payload", "get", stored.trim()]), r#"{"role": "user", "content": "hello"}"#);
    says(&shell.ok(&["payload", "delete", stored.trim()]), &["Deleted payload:"]);
    says(&run(&mut shell.command(&["payload", "get", stored.trim()])).1, &["was deleted"]);

    std::fs::set_permissions(&master, std::fs::Permissions::from_mode(0o640)).unwrap();
    let (code, words) = run(&mut with_key(&["payload", "key", "rotate", "acme"]));
    assert_ne!(code, Some(0));
    says(&words, &["chmod 600", &master]);
    std::fs::set_permissions(&master, std::fs::Permissions::from_mode(0o600)).unwrap();
    says(
        &run(&mut with_key(&["payload", "key", "rotate", "acme"])).1,
        &["payloads of acme are now encrypted with key"],
    );
    let (code, stored) = run(&mut with_key(&["payload", "put", &data, "--project", "acme"]));
    assert_eq!(code, Some(0), "{stored}");
    let copy = path("copy.json");
    assert_eq!(run(&mut with_key(&["payload", "get", stored.trim(), "--output", &copy])).0, Some(0));
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&data).unwrap());
    says(&run(&mut shell.command(&["payload", "get", stored.trim()])).1, &["payload_master_key_file"]);

    says(&run(&mut shell.command(&["payload", "key", "erase", "acme"])).1, &["--yes"]);
    says(&shell.ok(&["payload", "key", "erase", "acme", "--yes"]), &["erased 1 keys of acme"]);
    says(&run(&mut with_key(&["payload", "get", stored.trim()])).1, &["was erased"]);
    says(&shell.ok(&["payload", "key", "list"]), &["acme", "by "]);
    says(
        &shell.ok(&["audit", "list"]),
        &["payload get", "payload delete", "payload key rotate", "payload key erase"],
    );
}

/// D9: a function that raises a credential leaves it nowhere: not in the log, not in the queue, not in the dead letters.
#[tokio::test]
async fn no_credential_of_an_error_reaches_the_log() {
    let shell = Shell::open().await;
    shell
        .db
        .execute(
            "create schema biz;
             create function biz.boom(payload jsonb) returns jsonb language plpgsql as $$ begin
                 raise exception 'kaboom token=hunter2abc at postgres://u:hunter2abc@h/d'; end $$;
             revoke execute on function biz.boom from public;
             grant usage on schema biz to worker_service_user;
             grant execute on function biz.boom to worker_service_user",
        )
        .await;
    let payload = json!({"db_function": "biz.boom"});
    shell
        .database
        .enqueue(&NewJob::new("db_function").payload(&payload).unwrap().max_attempts(1))
        .await
        .unwrap();
    let mut command = shell.command(&["work", "--executor", "w", "--log-level", "debug"]);
    command.env("TOWPATH_WORKER_ROLE", "worker_service_user");
    let mut work = Victim::spawn(command);
    work.wait_for_line("token=***").await;
    shell.db.until("select count(*) from towpath.job_dead_letter", "1").await;
    work.terminate();
    work.wait_exit().await;
    let logged = work.lines().join("\n");
    let kept = shell.db.text("select string_agg(d::text, ' ') from towpath.job_dead_letter d").await;
    let errors = shell.db.text("select string_agg(e::text, ' ') from towpath.task_error e").await;
    for words in [logged, kept, errors] {
        assert!(words.contains("token=***") && !words.contains("hunter2abc"), "{words}");
    }
}
