//! `towpath message` and `towpath process`, with a worker that sends.

use serde_json::Value;
use towpath_testkit::provider::{Provider, TWILIO_ACCOUNT, TWILIO_SECRET};
use towpath_testkit::victim::Victim;

use crate::jobs_cli::Shell;

/// A worker on the shell's database: e-mail to the log, SMS to a double of Twilio.
async fn worker(shell: &Shell, provider: &Provider) -> Victim {
    shell.db.json("towpath.fn_consumer_put('towpath', 'PG_worker')").await;
    let subscribe = "towpath.fn_job_subscription_put('towpath', 'PG_worker', p_enabled => true)";
    assert_eq!(shell.db.json(subscribe).await["ok"], true);
    let mut command = shell.command(&["work"]);
    command.envs([
        ("TOWPATH_MAIL_TRANSPORT", "log"),
        ("TOWPATH_SMS_TRANSPORT", "twilio"),
        ("TOWPATH_TWILIO_ACCOUNT", TWILIO_ACCOUNT),
        ("TOWPATH_TWILIO_AUTH_TOKEN", TWILIO_SECRET),
        ("TOWPATH_SMS_FROM", "+15005550006"),
        ("TOWPATH_TWILIO_URL", &provider.url()),
    ]);
    let worker = Victim::spawn(command);
    worker.wait_for_line("towpath worker is running as").await;
    worker
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// P11, O04: the commands show a timeline, exit codes for scripts, and errors with the next step.
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_shown_followed_and_decided() {
    let shell = Shell::open().await;
    let provider = Provider::start().await;
    let _worker = worker(&shell, &provider).await;
    let refused =
        ["message", "send", "--sms", "--to", "+31600000211", "--text", "hi", "--wait", "--timeout", "60"];
    let told = shell.code(4, &refused);
    assert!(told.contains("failed (attempt 1)") && told.contains("21211"), "{told}");
    let process = shell.json(&["process", "list", "--state", "gave_up"])["processes"][0].clone();
    let shown = shell.ok(&["process", "show", text(&process, "process_id")]);
    for word in ["gave_up", "1 started, at most 5", "scheduled", "comms.send_sms"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let errors = shell.json(&["process", "errors", "--process", text(&process, "process_id")]);
    assert_eq!(errors["task_errors"][0]["kind"], "provider", "{errors}");
    let late = shell.fails(&["process", "cancel", text(&process, "process_id"), "--why", "x"]);
    assert!(late.contains("is gave_up") && late.contains("towpath process show"), "{late}");
    let nobody = shell.fails(&["process", "show", "01a1e1d6-bd8d-76ac-b98f-b383c8c05858"]);
    assert!(nobody.contains("there is no process"), "{nobody}");
    let bad = shell.fails(&["message", "send", "--to", "nobody", "--subject", "s", "--text", "t"]);
    assert!(bad.contains("is not an e-mail address"), "{bad}");
    let once =
        ["message", "send", "--to", "a@example.org", "--subject", "s", "--text", "t", "--key", "order-7"];
    let (first, again) = (shell.json(&once), shell.json(&once));
    assert_eq!((&again["duplicate"], &again["process_id"]), (&true.into(), &first["process_id"]));
}

/// P09: no command shows a secret, and a transport without its settings is refused at once.
#[tokio::test]
async fn secrets_are_never_shown() {
    let shell = Shell::open().await;
    let mut command = shell.command(&["settings", "--json"]);
    command.envs([
        ("TOWPATH_SMTP_URL", "smtps://user:hunter2@mail.example.org"),
        ("TOWPATH_RESEND_API_KEY", "re_hunter2"),
        ("TOWPATH_TWILIO_AUTH_TOKEN", "hunter2"),
    ]);
    let output = command.output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("smtps://user:***@mail.example.org"), "{shown}");
    let mut command = shell.command(&["work"]);
    let output = command.env("TOWPATH_MAIL_TRANSPORT", "smtp").output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("smtp requires the setting smtp_url"), "{complaint}");
}
