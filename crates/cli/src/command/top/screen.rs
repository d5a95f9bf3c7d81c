//! The terminal: reads keys, draws frames, and restores the terminal afterwards.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::{mpsc, watch};

use super::EVERY;
use super::draw::{self, HISTORY, View};
use super::frame::Frame;
use super::look::Looker;
use crate::output::{Exit, done};
use crate::shutdown;

/// How long the key thread may take to notice that the screen is closed.
const KEYS_POLL: Duration = Duration::from_millis(100);

/// The latest frame, or why there is none.
type Seen = Option<Result<Arc<Frame>, String>>;

/// The terminal while this command owns it. ratatui's panic hook restores it too.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Draws until the user quits.
pub(super) async fn run(looker: Looker) -> Exit {
    // Take the first snapshot before drawing, so that a database error is printed normally.
    let (seen, paused) = looking(looker).await?;
    let (mut interrupt, mut terminate) = shutdown::signals()?;
    let mut screen = Screen(ratatui::try_init().context("cannot draw on this terminal")?);
    let mut keys = keys();
    let mut seen = seen;
    let mut view = View::default();
    let mut history = VecDeque::new();
    loop {
        draw_once(&mut screen, &seen.borrow_and_update().clone(), &mut view, &mut history)?;
        tokio::select! {
            changed = seen.changed() => changed.context("the refresh task ended")?,
            event = keys.recv() => match event {
                Some(event) if quits(&event) => break,
                Some(event) => {
                    view.press(&event);
                    let _ = paused.send(view.paused);
                }
                None => break,
            },
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    done()
}

fn draw_once(
    screen: &mut Screen,
    seen: &Seen,
    view: &mut View,
    history: &mut VecDeque<u64>,
) -> anyhow::Result<()> {
    match seen {
        Some(Ok(frame)) => {
            view.trouble = None;
            if view.newest != Some(frame.at) {
                view.newest = Some(frame.at);
                history.push_back(frame.rates.map_or(0, |rates| rates.succeeded.round() as u64));
                history.drain(..history.len().saturating_sub(HISTORY));
                view.history = history.iter().copied().collect();
            }
            view.last = Some(frame.clone());
        }
        Some(Err(error)) => view.trouble = Some(error.clone()),
        None => {}
    }
    if let Some(frame) = view.last.clone() {
        screen.0.draw(|area| draw::whole(area, &frame, view))?;
    }
    fail_point();
    Ok(())
}

/// Refreshes once, then every second in its own task, so that a slow database never delays a key.
async fn looking(mut looker: Looker) -> anyhow::Result<(watch::Receiver<Seen>, watch::Sender<bool>)> {
    let first = looker.look().await?;
    let (sender, seen) = watch::channel(Some(Ok(Arc::new(first))));
    let (pause, mut paused) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(EVERY).await;
            if paused.wait_for(|paused| !paused).await.is_err() {
                return;
            }
            let look = looker.look().await.map(Arc::new).map_err(|error| format!("{error:#}"));
            if sender.send(Some(look)).is_err() {
                return;
            }
        }
    });
    Ok((seen, pause))
}

/// Key and resize events, read by a thread that ends soon after the receiver is dropped.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(64);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            match event::poll(KEYS_POLL) {
                Ok(true) => {
                    let sent = event::read().map(|event| sender.blocking_send(event).is_ok());
                    if !sent.unwrap_or(false) {
                        return;
                    }
                }
                Ok(false) => {}
                Err(_) => return,
            }
        }
    });
    receiver
}

fn quits(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || key.code == KeyCode::Char('q'))
}

/// Lets a test check that a panic restores the terminal. Debug builds only.
fn fail_point() {
    #[cfg(debug_assertions)]
    if std::env::var("TOWPATH_TEST_FAIL_POINT").is_ok_and(|name| name == "top.draw") {
        panic!("a test asked for it");
    }
}
