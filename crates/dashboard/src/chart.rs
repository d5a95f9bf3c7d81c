//! Charts as inline SVG: bars of counts per minute, lines of percentiles.

use jiff::Timestamp;
use towpath_db::health::EventMinute;
use towpath_db::queue::{Latency, LatencyMinute, Percentiles, QueueMinute};

use crate::filters::{grouped, short};

/// Minutes across a chart.
const MINUTES: i64 = 60;
/// The drawing area, which the page scales.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// One coloured piece of a bar.
pub(crate) struct Piece {
    pub(crate) class: &'static str,
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) height: f64,
    pub(crate) title: String,
}

/// Stacked counts per minute.
pub(crate) struct Bars {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) width: f64,
    pub(crate) max: String,
    pub(crate) total: i64,
}

/// The outcomes of a stack, from the bottom up.
const STACK: [(&str, &[&str]); 3] = [
    ("good", &["succeeded"]),
    ("warn", &["failed", "lost", "snoozed", "released"]),
    ("bad", &["dead_letter", "cancelled"]),
];

impl Bars {
    /// Finished attempts of the last hour up to `now`.
    pub(crate) fn attempts(minutes: &[QueueMinute], now: Timestamp) -> Bars {
        let layers = minutes.iter().map(|minute| {
            let layer = STACK.iter().position(|(_, outcomes)| outcomes.contains(&minute.outcome.as_str()));
            (minute.minute_at, layer.unwrap_or(1), minute.n)
        });
        Bars::new(layers, ["good", "warn", "bad"], now)
    }

    /// Events of the last hour up to `now`.
    pub(crate) fn events(minutes: &[EventMinute], now: Timestamp) -> Bars {
        let layers = minutes.iter().map(|minute| (minute.minute_at, 0, minute.n));
        Bars::new(layers, ["info", "info", "info"], now)
    }

    fn new(
        minutes: impl Iterator<Item = (Timestamp, usize, i64)>,
        classes: [&'static str; 3],
        now: Timestamp,
    ) -> Bars {
        let step = WIDTH / MINUTES as f64;
        let last = now.as_second() / 60;
        let mut heights = vec![[0i64; 3]; MINUTES as usize];
        for (minute_at, layer, n) in minutes {
            let at = MINUTES - 1 - (last - minute_at.as_second() / 60);
            let Some(column) = usize::try_from(at).ok().and_then(|at| heights.get_mut(at)) else { continue };
            column[layer] += n;
        }
        let max = heights.iter().map(|column| column.iter().sum()).max().unwrap_or(0).max(1);
        let mut pieces = vec![];
        for (at, column) in heights.iter().enumerate() {
            let mut floor = HEIGHT;
            for (class, n) in classes.iter().zip(column).filter(|(_, n)| **n > 0) {
                let height = (*n as f64 / max as f64 * (HEIGHT - 4.0)).max(1.0);
                floor -= height;
                let ago = MINUTES as usize - 1 - at;
                let what = match *class {
                    "good" => "succeeded",
                    "warn" => "failed or lost",
                    "bad" => "dead or cancelled",
                    _ => "events",
                };
                let title = format!("{} {what}, {ago} min ago", grouped(*n));
                pieces.push(Piece { class, x: at as f64 * step + 1.0, y: floor, height, title });
            }
        }
        let total = heights.iter().flatten().sum();
        Bars { pieces, width: step - 2.0, max: grouped(max), total }
    }
}

/// One line across the chart.
pub(crate) struct Line {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) points: String,
    /// Over the whole sample.
    pub(crate) overall: String,
}

/// Percentiles by minute.
pub(crate) struct Lines {
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<Line>,
    pub(crate) max: String,
}

const RANKS: [(&str, &str); 3] = [("p50", "p50"), ("p95", "p95"), ("p99", "p99")];

impl Lines {
    /// One chart each for waiting, running and the whole; none before the first job.
    pub(crate) fn all(latency: &Latency, now: Timestamp) -> Vec<Lines> {
        let chart = |title, overall: Option<Percentiles>, of: fn(&LatencyMinute) -> Percentiles| {
            Some(Lines::new(title, overall?, latency.minutes.iter().map(|m| (m.minute_at, of(m))), now))
        };
        let charts = [
            chart("Wait", latency.wait, |minute| minute.wait),
            chart("Run", latency.run, |minute| minute.run),
            chart("End to end", latency.whole, |minute| minute.whole),
        ];
        charts.into_iter().flatten().collect()
    }

    fn new(
        title: &'static str,
        overall: Percentiles,
        minutes: impl Iterator<Item = (Timestamp, Percentiles)>,
        now: Timestamp,
    ) -> Lines {
        let last = now.as_second() / 60;
        let mut points: Vec<(f64, Percentiles)> = minutes
            .filter_map(|(at, values)| {
                let column = MINUTES - 1 - (last - at.as_second() / 60);
                (0..MINUTES)
                    .contains(&column)
                    .then(|| ((column as f64 + 0.5) * WIDTH / MINUTES as f64, values))
            })
            .collect();
        // A line needs two points to be visible.
        if let [(x, values)] = points[..] {
            points.push((x - WIDTH / MINUTES as f64, values));
        }
        let max = points.iter().map(|(_, values)| values[2]).fold(0.001, f64::max);
        let lines = RANKS.iter().enumerate().map(|(rank, (class, name))| {
            let points = points.iter().map(|(x, values)| {
                let y = HEIGHT - 2.0 - values[rank] / max * (HEIGHT - 6.0);
                format!("{x:.1},{y:.1}")
            });
            Line { class, name, points: points.collect::<Vec<_>>().join(" "), overall: short(overall[rank]) }
        });
        Lines { title, lines: lines.collect(), max: short(max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_high_as_its_share_and_old_minutes_are_left_out() {
        let now: Timestamp = "2026-01-01T12:00:30Z".parse().unwrap();
        let minute = |at: &str, outcome: &str, n| QueueMinute {
            minute_at: at.parse().unwrap(),
            job_kind: "mail".into(),
            outcome: outcome.into(),
            n,
            wait_ms: 0,
            run_ms: 0,
        };
        let bars = Bars::attempts(
            &[
                minute("2026-01-01T12:00:00Z", "succeeded", 90),
                minute("2026-01-01T12:00:00Z", "failed", 10),
                minute("2026-01-01T11:30:00Z", "succeeded", 50),
                minute("2026-01-01T10:00:00Z", "succeeded", 7_000),
            ],
            now,
        );
        assert_eq!((bars.pieces.len(), bars.total, bars.max.as_str()), (3, 150, "100"));
        let heights: Vec<i64> = bars.pieces.iter().map(|piece| piece.height.round() as i64).collect();
        assert_eq!(heights, [58, 104, 12]);
    }
}
