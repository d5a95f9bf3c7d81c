//! `towpath top` on a terminal: it draws, it quits, and it restores the terminal.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::terminal::Terminal;
use crate::towpath::{Place, words};

/// O01, O04: the overview page and `towpath top` judge the same figures: same text, same order.
#[tokio::test]
async fn top_and_the_overview_say_the_same() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    place.ok(&["queue", "pause", "nobody.runs.this", "--unseen", "--why", "a test"]);
    place.ok(&["gate", "close", "event.delivery.enabled", "--why", "a test"]);
    let frame: Value = serde_json::from_str(&place.ok(&["top", "--once", "--json"])).unwrap();
    let notes = frame["attention"].as_array().unwrap().iter().filter(|one| one["level"] == "note");
    let told: Vec<_> = notes.map(|one| one["text"].as_str().unwrap()).collect();
    assert_eq!(told, ["1 job kind is paused", "closed gates: event.delivery.enabled"]);
    // The page counts beside its answer, and shows what it counted last.
    let url = format!("http://127.0.0.1:{}/ui", place.port);
    let places = |page: &str| told.iter().map(|text| page.find(&format!(">{text}</a>"))).collect::<Vec<_>>();
    let look = async || reqwest::get(&url).await.unwrap().text().await.unwrap();
    let is_there = |page: &String| places(page).iter().all(Option::is_some);
    let page = wait::until(format!("{told:?} on the page"), look, is_there).await;
    assert!(places(&page).is_sorted(), "{page}");
    up.terminate();
    up.wait_exit().await;
}

/// O04: it draws the figures, turns pages, and restores the terminal however it ends.
#[tokio::test]
async fn top_draws_and_gives_the_terminal_back() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    place.ok(&["job", "enqueue", "nobody.runs.this"]);

    let mut top = Terminal::run(place.command(&["top"]));
    top.wait_for("Needs attention").await;
    top.press("2");
    top.wait_for("nobody.runs.this").await;
    top.press("q");
    assert_eq!(top.wait_exit().await.code(), Some(0));
    top.is_as_before().await;

    let mut top = Terminal::run(place.command(&["top"]));
    top.wait_for("Needs attention").await;
    top.press("\x03");
    assert_eq!(top.wait_exit().await.code(), Some(0), "Ctrl-C");
    top.is_as_before().await;

    let mut top = Terminal::run(place.command(&["top"]));
    top.wait_for("Needs attention").await;
    kill(Pid::from_raw(top.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(top.wait_exit().await.code(), Some(0), "SIGTERM");
    top.is_as_before().await;

    let mut command = place.command(&["top"]);
    command.env("TOWPATH_TEST_FAIL_POINT", "top.draw");
    let mut top = Terminal::run(command);
    assert_eq!(top.wait_exit().await.code(), Some(101), "a panic");
    top.is_as_before().await;
    assert!(top.text().contains("a test asked for it"), "{:?}", top.text());

    let frame: Value = serde_json::from_str(&place.ok(&["top", "--once", "--json"])).unwrap();
    assert_eq!(frame["queue"]["queued"], 1);
    assert!(frame["rates"].is_object() && frame["streams"]["missing"].is_null(), "{frame}");
    assert!(place.ok(&["top", "--once"]).contains("Needs attention"));
    let piped = place.run(&["top"]);
    assert_eq!(piped.status.code(), Some(1));
    assert!(words(&piped).contains("towpath top --once --json"), "{}", words(&piped));
    up.terminate();
    up.wait_exit().await;
}
