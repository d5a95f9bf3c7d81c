//! `towpath executor`.

use serde_json::json;
use towpath_db::Error;
use towpath_db::executor_token::TokenHash;
use towpath_db::job::{Claim, LeaseOwner};

use super::{Shell, says};

/// R06, R08: an executor is registered with what it claims, enabled and disabled, and removed.
#[tokio::test]
async fn an_executor_is_added_switched_and_removed() {
    let shell = Shell::open().await;
    let add = [
        "executor",
        "add",
        "py",
        "--executor",
        "external_worker",
        "--job-kind",
        "resize",
        "--job-kind",
        "crop",
    ];
    says(
        &shell.ok(&[&add[..], &["--max-parallel", "4", "--notes", "images"]].concat()),
        &["executor enable py"],
    );
    let rows = shell.json(&["executor", "list", "py"]);
    assert_eq!(rows["subscriptions"].as_array().unwrap().len(), 2);
    assert_eq!(rows["subscriptions"][0]["enabled"], false, "nobody claims by accident");
    says(&shell.ok(&["executor", "enable", "py", "--job-kind", "crop"]), &["1 of 2 subscriptions changed"]);
    says(&shell.ok(&["executor", "enable", "py"]), &["1 of 2"]);
    says(&shell.ok(&["executor", "enable", "py"]), &["is already enabled"]);
    says(&shell.ok(&["executor", "list"]), &["resize", "crop", "0 of 4", "enabled", "never", "any kind"]);
    let kept = &shell.json(&["executor", "list", "py"])["subscriptions"][0];
    assert_eq!(
        (&kept["max_parallel"], &kept["notes"]),
        (&json!(4), &json!("images")),
        "switching keeps the rest"
    );
    says(&shell.fails(&["executor", "disable", "pi"]), &["there is no executor pi; did you mean py?"]);
    says(&shell.fails(&["executor", "disable", "py", "--job-kind", "crup"]), &["did you mean crop?"]);
    says(&shell.fails(&["executor", "add", "x", "--executor", "MOT", "--any-kind"]), &["whitelist"]);
    shell.code(2, &["executor", "add", "x", "--executor", "Agent"]);
    shell.code(2, &["executor", "add", "x", "--executor", "Agent", "--any-kind", "--max-parallel", "0"]);
    let job = ["job", "enqueue", "crop", "--executor", "external_worker"];
    shell.ok(&job);
    let owner = LeaseOwner::new("py-1");
    let claim = Claim { executor: "py", kinds: None, limit: 1, owner: &owner, lease: None };
    let claimed = shell.database.claim(&claim).await.unwrap().pop().unwrap();
    says(&shell.fails(&["executor", "remove", "py"]), &["it has leased jobs"]);
    claimed.lease.ack(&shell.database).await.unwrap();
    shell.ok(&["executor", "remove", "py"]);
    says(&shell.fails(&["executor", "list", "py"]), &["there is no executor py"]);
}

/// Adding again changes the given fields and keeps the rest: nothing is disabled, and a login that restricts the
/// executor stays.
#[tokio::test]
async fn adding_again_keeps_what_is_not_said() {
    let shell = Shell::open().await;
    let add = ["executor", "add", "py", "--executor", "external_worker", "--job-kind", "resize"];
    shell.ok(&[&add[..], &["--enable", "--login-role", "py_login", "--notes", "images"]].concat());
    says(&shell.ok(&[&add[..], &["--max-parallel", "8"]].concat()), &["it can claim jobs"]);
    let rows = shell.json(&["executor", "list", "py"]);
    assert_eq!(
        (&rows["subscriptions"][0]["enabled"], &rows["subscriptions"][0]["max_parallel"]),
        (&json!(true), &json!(8))
    );
    assert_eq!(
        (&rows["consumers"][0]["login_role"], &rows["consumers"][0]["notes"]),
        (&json!("py_login"), &json!("images"))
    );
    says(&shell.ok(&[&add[..6], &["crop"]].concat()), &["executor enable py"]);
}

/// R08: a token is shown once, listed without its value, and revoked at once.
#[tokio::test]
async fn tokens_are_made_listed_and_revoked() {
    let shell = Shell::open().await;
    says(&shell.fails(&["executor", "token", "create", "ww"]), &["did you mean w?"]);
    let made = shell.json(&[
        "executor",
        "token",
        "create",
        "w",
        "--kind",
        "mail",
        "--may-enqueue",
        "--expires",
        "30d",
    ]);
    let (word, id) = (made["token"].as_str().unwrap(), made["token_id"].as_str().unwrap());
    let scope = shell.database.executor_token_check(&TokenHash::of(word)).await.unwrap();
    assert_eq!((scope.kinds.as_deref(), scope.may_enqueue), (Some(&["mail".to_owned()][..]), true));
    let listed = shell.ok(&["executor", "token", "list", "w"]);
    says(&listed, &[id, "claim mail, enqueue", "active"]);
    assert!(!listed.contains(word));
    says(&shell.ok(&["executor", "token", "revoke", id]), &["revoked token"]);
    says(&shell.ok(&["executor", "token", "revoke", id]), &["is already revoked"]);
    let refused = shell.database.executor_token_check(&TokenHash::of(word)).await.unwrap_err();
    assert!(matches!(refused, Error::NotAuthorised(_)), "{refused}");
    let other = shell.json(&["executor", "token", "create", "w"])["token"].as_str().unwrap().to_owned();
    assert_eq!(
        shell.json(&["executor", "remove", "w"])["tokens_revoked"],
        1,
        "tokens go with their executor"
    );
    assert!(shell.database.executor_token_check(&TokenHash::of(&other)).await.is_err());
}

/// R09: what producers may enqueue is granted, listed and revoked.
#[tokio::test]
async fn grants_are_made_listed_and_revoked() {
    let shell = Shell::open().await;
    let add = ["executor", "grant", "add", "shop", "--job-kind", "mail", "--executor", "PG_worker"];
    let grant = shell.json(&add)["grant_id"].as_str().unwrap().to_owned();
    says(&shell.ok(&["executor", "grant", "list"]), &["shop", "mail", "PG_worker", &grant]);
    says(&shell.fails(&["executor", "grant", "add", "shop", "--executor", "MOT"]), &["whitelist"]);
    says(&shell.ok(&add), &["shop could already enqueue jobs of kind mail for executor PG_worker", &grant]);
    says(&shell.misused(&["executor", "grant", "add", "till"]), &["--job-kind", "--executor", "--any-kind"]);
    let any = shell.ok(&["executor", "grant", "add", "till", "--any-kind"]);
    says(&any, &["till may now enqueue jobs of every kind for any executor"]);
    shell.ok(&["executor", "grant", "revoke", &grant]);
    says(&shell.fails(&["executor", "grant", "revoke", &grant]), &["there is no grant"]);
    says(&shell.ok(&["executor", "grant", "list", "shop"]), &["no grants"]);
}

/// R09: a producer's token is made, listed with what it may do, and revoked.
#[tokio::test]
async fn producers_get_tokens_too() {
    let shell = Shell::open().await;
    shell.code(2, &["token", "create"]);
    let made =
        shell.json(&["token", "create", "--produce", "resize", "crop", "--emit", "images", "--notes", "web"]);
    let (word, id) = (made["token"].as_str().unwrap(), made["token_id"].as_str().unwrap());
    assert!(word.starts_with("tpp_"), "{made}");
    let worker =
        shell.json(&["executor", "token", "create", "w", "--register", "--produce", "*", "--emit", "*"]);
    let scope =
        shell.database.executor_token_check(&TokenHash::of(worker["token"].as_str().unwrap())).await.unwrap();
    assert_eq!(scope.executor_id.as_deref(), Some("w"));
    let listed = shell.ok(&["token", "list"]);
    says(&listed, &[id, "(producer)", "produce crop resize, emit images", "active"]);
    says(&listed, &["claim all subscribed, register, produce *, emit *"]);
    assert!(!listed.contains(word));
    says(&shell.ok(&["token", "revoke", id]), &["revoked token"]);
    assert!(shell.database.executor_token_check(&TokenHash::of(word)).await.is_err());
}
