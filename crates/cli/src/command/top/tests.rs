//! The drawing, on data from a real PostgreSQL.

use clap::Parser;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent};
use towpath_db::Attribution;
use towpath_db::event::NewEvent;
use towpath_db::job::NewJob;
use towpath_model::health::Level;
use towpath_testkit::database::TestDb;

use super::draw::{Pane, View, as_text};
use super::frame::Frame;
use super::look::Looker;
use crate::Cli;
use crate::command::stream::client::Client;

/// Three waiting jobs and no executor, a dead one, an event, and no stream server.
async fn busy() -> (TestDb, Frame) {
    let db = TestDb::open().await;
    let database = db.database().await;
    for _ in 0..3 {
        database.enqueue(&NewJob::new("mail.send")).await.unwrap();
    }
    let dead = database.enqueue(&NewJob::new("mail.bounce")).await.unwrap().job_id;
    let by = Attribution { actor: "ann", reason: "no such address" };
    database.job_move_to_dead_letter(dead, by).await.unwrap();
    database.event_emit(&NewEvent::new("shop", "order.placed")).await.unwrap();
    database.event_sequence(10).await.unwrap();
    // Nothing listens on port 9.
    let cli = Cli::try_parse_from(["towpath", "--url", "http://127.0.0.1:9", "top"]).unwrap();
    let mut looker = Looker::new(database, Client::new(&cli.settings, "default".into()).unwrap());
    looker.look().await.unwrap();
    (db, looker.look().await.unwrap())
}

fn shown(frame: &Frame, pane: Pane, size: (u16, u16)) -> String {
    as_text(frame, &View { pane, ..View::default() }, size)
}

/// O04: waiting and failed work and the attention list, each with a command; wide and narrow.
#[tokio::test]
async fn every_pane_shows_what_the_database_holds() {
    let (_db, frame) = busy().await;
    assert!(frame.rates.is_some() && frame.attention[0].level == Level::Bad);
    for size in [(120, 40), (60, 50)] {
        let overview = shown(&frame, Pane::Overview, size);
        for words in [
            "3 (0 blocked, 0 to retry)",
            "1 pending of 1",
            "0.0/s, 1 total",
            "3 due mail.send jobs are waiting",
            "towpath dlq list",
            "server not reachable",
        ] {
            assert!(overview.contains(words), "{words} is not in\n{overview}");
        }
    }
    let jobs = shown(&frame, Pane::Jobs, (120, 40));
    assert!(jobs.contains("mail.send") && jobs.contains("queued"), "{jobs}");
    assert!(shown(&frame, Pane::Events, (120, 40)).contains("1 events to route"));
    let streams = shown(&frame, Pane::Streams, (120, 40));
    assert!(streams.contains("Start it with `towpath up`"), "{streams}");
    for pane in Pane::ALL {
        // A tiny screen must not panic.
        shown(&frame, pane, (3, 2));
    }
}

/// Keys switch panes, scroll within bounds and pause.
#[tokio::test]
async fn keys_change_the_view() {
    let (_db, frame) = busy().await;
    let mut view = View::default();
    let mut press = |code| {
        view.press(&Event::Key(KeyEvent::from(code)));
        as_text(&frame, &view, (120, 40))
    };
    assert!(press(KeyCode::Char('2')).contains("Unfinished jobs"));
    assert!(press(KeyCode::PageDown).contains("mail.send"), "the last row stays visible");
    assert!(press(KeyCode::Tab).contains("Routes;"));
    assert!(press(KeyCode::Left).contains("Unfinished jobs"));
    assert!(press(KeyCode::BackTab).contains("Needs attention"));
    assert!(press(KeyCode::Char('p')).contains("paused"));
    assert!(press(KeyCode::Char('?')).contains("switch pane"));
    assert!(press(KeyCode::Esc).contains("Needs attention"));
}
