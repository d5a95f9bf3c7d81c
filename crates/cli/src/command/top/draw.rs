//! Drawing: turns a frame and a view into cells. Pure, so that tests can check it.

use std::sync::Arc;

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};
use towpath_model::health::Level;

use super::frame::Frame;

/// Seconds of throughput kept for the chart.
pub(super) const HISTORY: usize = 300;
/// Below this width the boxes are stacked.
const WIDE: u16 = 80;

/// Which part of a frame is shown, and how.
#[derive(Default)]
pub(super) struct View {
    pub(super) pane: Pane,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) scroll: usize,
    /// Why the latest refresh failed.
    pub(super) trouble: Option<String>,
    pub(super) newest: Option<Timestamp>,
    pub(super) last: Option<Arc<Frame>>,
    /// Jobs per second, oldest first.
    pub(super) history: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Overview,
    Jobs,
    Events,
    Processes,
    Streams,
    Executors,
}

impl Pane {
    pub(super) const ALL: [Pane; 6] =
        [Pane::Overview, Pane::Jobs, Pane::Events, Pane::Processes, Pane::Streams, Pane::Executors];

    fn name(self) -> &'static str {
        match self {
            Pane::Overview => "Overview",
            Pane::Jobs => "Jobs",
            Pane::Events => "Events",
            Pane::Processes => "Processes",
            Pane::Streams => "Streams",
            Pane::Executors => "Executors",
        }
    }

    fn number(self) -> usize {
        Pane::ALL.iter().position(|pane| *pane == self).unwrap_or(0)
    }

    fn by(self, steps: usize) -> Pane {
        Pane::ALL[(self.number() + steps) % Pane::ALL.len()]
    }
}

impl View {
    /// Handles a key: switch pane, scroll, pause.
    pub(super) fn press(&mut self, event: &Event) {
        let Event::Key(key) = event else { return };
        if key.kind == KeyEventKind::Release {
            return;
        }
        let turn = |view: &mut View, pane| (view.pane, view.scroll) = (pane, 0);
        match key.code {
            KeyCode::Char(digit @ '1'..='6') => {
                turn(self, Pane::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Tab | KeyCode::Right => turn(self, self.pane.by(1)),
            KeyCode::BackTab | KeyCode::Left => turn(self, self.pane.by(Pane::ALL.len() - 1)),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll += 20,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(20),
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Esc => self.help = false,
            _ => {}
        }
    }
}

/// The whole screen.
pub(super) fn whole(area: &mut ratatui::Frame<'_>, frame: &Frame, view: &View) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area.area());
    area.render_widget(title(frame, view), head);
    area.render_widget(tab_line(view), tabs);
    match (view.help, view.pane) {
        (true, _) => area.render_widget(help(), body),
        (_, Pane::Overview) => overview(area, body, frame, view),
        (_, Pane::Jobs) => list(area, body, jobs(frame), view),
        (_, Pane::Events) => list(area, body, routes(frame), view),
        (_, Pane::Processes) => list(area, body, processes(frame), view),
        (_, Pane::Streams) => streams(area, body, frame, view),
        (_, Pane::Executors) => list(area, body, executors(frame), view),
    }
    area.render_widget(
        Paragraph::new(" 1-6 Tab panes   p pause   ↑↓ scroll   ? help   q quit").style(dim()),
        foot,
    );
}

/// The same as text, without colours.
pub(super) fn as_text(frame: &Frame, view: &View, (width, height): (u16, u16)) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|area| whole(area, frame, view));
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn title(frame: &Frame, view: &View) -> Line<'static> {
    let mut line = Line::from(vec![
        Span::styled(" towpath top ", bold().fg(Color::Cyan)),
        Span::raw(format!(" {:.0} ", frame.at)),
    ]);
    if view.paused {
        line.push_span(Span::styled(" paused ", bold().fg(Color::Yellow)));
    }
    if let Some(trouble) = &view.trouble {
        line.push_span(Span::styled(format!(" refresh failed: {trouble}"), bold().fg(Color::Red)));
    }
    line
}

fn tab_line(view: &View) -> Line<'static> {
    let spans = Pane::ALL.iter().map(|pane| {
        let text = format!(" {} {} ", pane.number() + 1, pane.name());
        match *pane == view.pane {
            true => Span::styled(text, bold().add_modifier(Modifier::REVERSED)),
            false => Span::raw(text),
        }
    });
    Line::from_iter(spans)
}

fn help() -> Paragraph<'static> {
    let keys = [
        ("1 … 6, Tab, ←, →", "switch pane"),
        ("↑, ↓, j, k, PgUp, PgDn, Home", "scroll"),
        ("p, space", "pause or resume updates"),
        ("?, h, Esc", "show or hide this help"),
        ("q, Ctrl-C", "quit"),
    ];
    let lines = keys.map(|(key, does)| Line::raw(format!("  {key:<30} {does}")));
    Paragraph::new(lines.to_vec()).block(Block::bordered().title(" Keys "))
}

fn overview(area: &mut ratatui::Frame<'_>, body: Rect, frame: &Frame, view: &View) {
    let boxes =
        [("Jobs", job_facts(frame)), ("Events", event_facts(frame)), ("Streams", stream_facts(frame))];
    let is_wide = body.width >= WIDE;
    let facts_height = if is_wide { 8 } else { 24 };
    let [facts, chart, attention] =
        Layout::vertical([Constraint::Length(facts_height), Constraint::Length(6), Constraint::Min(3)])
            .areas(body);
    let thirds = [Constraint::Ratio(1, 3); 3];
    let cells: [Rect; 3] =
        if is_wide { Layout::horizontal(thirds).areas(facts) } else { Layout::vertical(thirds).areas(facts) };
    for ((name, facts), cell) in boxes.into_iter().zip(cells) {
        let lines: Vec<Line<'_>> = facts
            .into_iter()
            .map(|(name, value)| {
                Line::from(vec![Span::styled(format!("{name:<11} "), dim()), Span::raw(value)])
            })
            .collect();
        area.render_widget(Paragraph::new(lines).block(Block::bordered().title(format!(" {name} "))), cell);
    }
    let width = usize::from(chart.width.saturating_sub(2));
    let recent = &view.history[view.history.len().saturating_sub(width)..];
    let peak = recent.iter().max().copied().unwrap_or(0);
    let heading = format!(" Jobs per second, last {} s, peak {peak} ", recent.len());
    let line = Sparkline::default().data(recent).style(Style::new().fg(Color::Green));
    area.render_widget(line.block(Block::bordered().title(heading)), chart);
    attention_list(area, attention, frame);
}

fn job_facts(frame: &Frame) -> Vec<(&'static str, String)> {
    let queue = &frame.queue;
    let rates = frame.rates.unwrap_or_default();
    let percentiles = |values: Option<[f64; 3]>| {
        values.map_or_else(|| "-".to_owned(), |[p50, _, p99]| format!("{p50:.0} ms, p99 {p99:.0} ms"))
    };
    vec![
        ("done", format!("{:.1}/s, {} total", rates.succeeded, queue.succeeded)),
        ("failed", format!("{:.1}/s, {} attempts total", rates.failed, queue.failed_attempts)),
        (
            "waiting",
            format!("{} ({} blocked, {} to retry)", queue.waiting(), queue.blocked, queue.retry_waiting),
        ),
        ("running", queue.running().to_string()),
        ("dead", format!("{} pending of {}", queue.dead_letters_pending, queue.dead)),
        ("p50 wait", percentiles(frame.latency.wait)),
    ]
}

fn event_facts(frame: &Frame) -> Vec<(&'static str, String)> {
    let events = &frame.events;
    let held = frame.processes.iter().filter(|process| process.state == "held").count();
    vec![
        (
            "events",
            format!("{:.1}/s, {} total", frame.rates.unwrap_or_default().events, events.last_position),
        ),
        ("lag", format!("{} events", events.slowest_lag)),
        (
            "deliveries",
            format!("{} waiting, {} in flight", events.deliveries_waiting, events.deliveries_leased),
        ),
        ("dead", format!("{} open", events.route_dead_letters_open)),
        ("circuits", format!("{} not closed", events.circuits_open)),
        ("processes", format!("{} running, {held} held", frame.processes.len() - held)),
    ]
}

fn stream_facts(frame: &Frame) -> Vec<(&'static str, String)> {
    let alive = frame.executors.iter().filter(|heartbeat| heartbeat.freshness == "fresh").count();
    let executors = ("executors", format!("{alive} of {} alive", frame.executors.len()));
    let streams = &frame.streams;
    if streams.missing.is_some() {
        return vec![
            ("streams", "server not reachable".into()),
            ("", "start it: towpath up".into()),
            executors,
        ];
    }
    let lag: i64 = streams.sources.iter().filter_map(|source| source["lagBytes"].as_i64()).sum();
    let sessions =
        |stream: &&serde_json::Value| stream["id"].as_str().is_some_and(|id| id.starts_with("session:"));
    vec![
        ("streams", (streams.streams.len() - streams.streams.iter().filter(sessions).count()).to_string()),
        ("sessions", streams.sessions.len().to_string()),
        ("followed", streams.sources.len().to_string()),
        ("lag", format!("{lag} bytes")),
        executors,
    ]
}

fn attention_list(area: &mut ratatui::Frame<'_>, cell: Rect, frame: &Frame) {
    let lines: Vec<Line<'_>> = match frame.attention.is_empty() {
        true => vec![Line::styled("nothing needs attention", Style::new().fg(Color::Green))],
        false => frame
            .attention
            .iter()
            .map(|attention| {
                let colour = match attention.level {
                    Level::Bad => Color::Red,
                    Level::Warn => Color::Yellow,
                    Level::Note => Color::Blue,
                };
                Line::from(vec![
                    Span::styled("● ", Style::new().fg(colour)),
                    Span::raw(attention.text.as_str()),
                    Span::styled(format!("  {}", attention.command), dim()),
                ])
            })
            .collect(),
    };
    let block = Block::bordered().title(" Needs attention ");
    area.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), cell);
}

/// A table: title, head and rows.
type Listed = (String, Vec<&'static str>, Vec<Vec<String>>);

fn list(area: &mut ratatui::Frame<'_>, cell: Rect, (title, head, rows): Listed, view: &View) {
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<Constraint> = (0..head.len())
        .map(|column| Constraint::Length(u16::try_from(widest(column)).unwrap_or(u16::MAX)))
        .collect();
    // The last row stays visible, however far the user scrolls.
    let skipped = view.scroll.min(rows.len().saturating_sub(1));
    let empty = rows.is_empty();
    let shown = rows.iter().skip(skipped).map(|row| Row::new(row.clone()));
    let table = Table::new(shown, widths).header(Row::new(head.clone()).style(bold())).column_spacing(2);
    let block = Block::bordered().title(format!(" {title} "));
    match empty {
        true => area.render_widget(Paragraph::new("none").style(dim()).block(block), cell),
        false => area.render_widget(table.block(block), cell),
    }
}

fn jobs(frame: &Frame) -> Listed {
    let rows = frame.backlog.iter().map(|row| {
        let next = row.next_scheduled_at.map_or_else(String::new, |at| format!("{at:.0}"));
        let paused = if row.paused { "paused" } else { "" };
        vec![
            row.job_kind.clone(),
            row.state.clone(),
            row.row_count.to_string(),
            row.blocked_count.to_string(),
            next,
            format!("{:.1}", row.avg_attempts),
            paused.to_owned(),
        ]
    });
    let head = vec!["KIND", "STATE", "JOBS", "BLOCKED", "NEXT DUE", "ATTEMPTS", ""];
    ("Unfinished jobs".to_owned(), head, rows.collect())
}

fn routes(frame: &Frame) -> Listed {
    let rows = frame.routes.iter().map(|route| {
        vec![
            route.route_name.clone(),
            route.mode.to_string(),
            route.target_kind.clone(),
            route.deliveries_waiting.to_string(),
            route.dead_letters_open.to_string(),
            route.circuit.clone().unwrap_or_default(),
        ]
    });
    let head = vec!["ROUTE", "MODE", "TO", "WAITING", "DEAD", "CIRCUIT"];
    (format!("Routes; {} events to route", frame.events.slowest_lag), head, rows.collect())
}

fn processes(frame: &Frame) -> Listed {
    let rows = frame.processes.iter().map(|process| {
        let next = process.next_check_at.map_or_else(String::new, |at| format!("{at:.0}"));
        vec![
            process.process_id.to_string(),
            process.process_kind.clone(),
            process.reference.clone(),
            process.state.clone(),
            format!("{:.0}", process.started_at),
            next,
        ]
    });
    let head = vec!["PROCESS", "KIND", "REF", "STATE", "STARTED", "NEXT CHECK"];
    ("Unfinished processes".to_owned(), head, rows.collect())
}

fn streams(area: &mut ratatui::Frame<'_>, body: Rect, frame: &Frame, view: &View) {
    let text = |value: &serde_json::Value, name: &str| match &value[name] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    };
    if let Some(missing) = &frame.streams.missing {
        let words = format!(
            "Streams and sessions come from the server, which does not respond: {missing}.\n\n\
             Start it with `towpath up`, or choose another with --url. Everything else on these pages comes \
             from the database."
        );
        let block = Block::bordered().title(" Streams and sessions ");
        area.render_widget(Paragraph::new(words).wrap(Wrap { trim: false }).block(block), body);
        return;
    }
    let pick = |list: &[serde_json::Value], names: &[&str]| -> Vec<Vec<String>> {
        list.iter().map(|value| names.iter().map(|name| text(value, name)).collect()).collect()
    };
    let [above, below] = Layout::vertical([Constraint::Ratio(1, 3), Constraint::Ratio(2, 3)]).areas(body);
    let names = ["streamId", "subscribers", "lagBytes", "circuit", "nextOffset"];
    let head = vec!["STREAM", "SESSIONS", "LAG BYTES", "CIRCUIT", "NEXT OFFSET"];
    let sources = ("Followed by sessions".to_owned(), head, pick(&frame.streams.sources, &names));
    list(area, above, sources, &View::default());
    let head = vec!["STREAM", "TYPE", "NEXT OFFSET", "EXPIRES"];
    let names = ["id", "content_type", "next_offset", "expires_at"];
    let all = ("Streams".to_owned(), head, pick(&frame.streams.streams, &names));
    list(area, below, all, view);
}

fn executors(frame: &Frame) -> Listed {
    let rows = frame.executors.iter().map(|heartbeat| {
        vec![
            heartbeat.executor_name.clone(),
            heartbeat.executor_kind.clone(),
            format!("{:.0} s ago", heartbeat.seconds_since_tick),
            heartbeat.freshness.clone(),
            heartbeat.last_tick_status.clone(),
        ]
    });
    ("Executors".to_owned(), vec!["EXECUTOR", "KIND", "LAST SEEN", "FRESHNESS", "STATUS"], rows.collect())
}
