//! The checker of fan-out histories. From the requests and answers, and from what sessions hold at
//! the end, it decides whether each session holds exactly the messages that were published while
//! it was subscribed, once each, in the order of their source.
//!
//! A message is known by its source and its number there. Answers that a kill prevented are
//! derived from the state at the next start.

use std::collections::BTreeMap;

/// A request or an answer, in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    PublishAsked {
        source: usize,
        number: u64,
    },
    /// Delivered at once or queued: that makes no difference to its subscribers.
    Published {
        source: usize,
        number: u64,
    },
    SubscribeAsked {
        session: usize,
        source: usize,
    },
    Subscribed {
        session: usize,
        source: usize,
        start: u64,
    },
    UnsubscribeAsked {
        session: usize,
        source: usize,
    },
    Unsubscribed {
        session: usize,
        source: usize,
    },
    DeleteAsked {
        session: usize,
    },
    Deleted {
        session: usize,
    },
    /// What a source holds at a start.
    Source {
        source: usize,
        count: u64,
    },
    /// What a session follows at a start; `None` if it is not there.
    Session {
        session: usize,
        follows: Option<Vec<(usize, u64)>>,
    },
}

/// A time in which a session followed a source: the first message it must hold, and the bounds of
/// the last one.
#[derive(Debug, Clone, Copy)]
struct Interval {
    source: usize,
    start: u64,
    end_min: u64,
    /// `None` while it lasts.
    end_max: Option<u64>,
}

#[derive(Debug, Default)]
struct Session {
    intervals: Vec<Interval>,
    in_flight: Option<Line>,
}

/// What is known so far.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// How many publishes were asked for and acknowledged, per source.
    sources: BTreeMap<usize, [u64; 2]>,
    sessions: BTreeMap<usize, Session>,
}

impl Checker {
    /// Processes the next line.
    pub(crate) fn take(&mut self, line: &Line) -> Result<(), String> {
        match *line {
            Line::PublishAsked { source, number } => self.count(source, 0, number + 1),
            Line::Published { source, number } => self.count(source, 1, number + 1),
            Line::SubscribeAsked { session, .. } | Line::DeleteAsked { session } => {
                self.session(session).in_flight = Some(line.clone());
            }
            Line::UnsubscribeAsked { session, source } => {
                // F12: it must get what was acknowledged before it asked to leave.
                let acknowledged = self.counts(source)[1];
                let session = self.session(session);
                session.in_flight = Some(line.clone());
                if let Some(open) = session.open(source) {
                    open.end_min = acknowledged.max(open.start);
                }
            }
            Line::Subscribed { session, source, start } => self.subscribed(session, source, start)?,
            Line::Unsubscribed { session, source } => self.unsubscribed(session, source),
            Line::Deleted { session } => *self.session(session) = Session::default(),
            Line::Source { source, count } => {
                let [_, acknowledged] = self.counts(source);
                if count < acknowledged {
                    return Err(format!("source {source} lost messages: {count} of {acknowledged}"));
                }
                self.sources.insert(source, [count, acknowledged]);
            }
            Line::Session { session, ref follows } => self.found(session, follows.as_deref())?,
        }
        Ok(())
    }

    fn counts(&self, source: usize) -> [u64; 2] {
        self.sources.get(&source).copied().unwrap_or_default()
    }

    fn count(&mut self, source: usize, which: usize, count: u64) {
        let counts = self.sources.entry(source).or_default();
        counts[which] = count.max(counts[which]);
    }

    fn session(&mut self, session: usize) -> &mut Session {
        self.sessions.entry(session).or_default()
    }

    fn subscribed(&mut self, number: usize, source: usize, start: u64) -> Result<(), String> {
        let session = self.session(number);
        session.in_flight = None;
        match session.open(source) {
            Some(open) if open.start != start => {
                Err(format!("session {number} follows {source} from {start}, not from {}", open.start))
            }
            Some(_) => Ok(()),
            None => {
                session.intervals.push(Interval { source, start, end_min: start, end_max: None });
                Ok(())
            }
        }
    }

    fn unsubscribed(&mut self, session: usize, source: usize) {
        let asked = self.counts(source)[0];
        let session = self.session(session);
        session.in_flight = None;
        if let Some(open) = session.open(source) {
            open.end_max = Some(asked);
        }
    }

    /// Compares what a session follows after a kill with what was acknowledged, and finds out what
    /// happened to the request that was in flight.
    fn found(&mut self, number: usize, follows: Option<&[(usize, u64)]>) -> Result<(), String> {
        let in_flight = self.session(number).in_flight.take();
        let Some(follows) = follows else {
            let knew = !self.session(number).intervals.is_empty();
            let may_be = matches!(in_flight, Some(Line::DeleteAsked { .. })) || !knew;
            *self.session(number) = Session::default();
            return if may_be { Ok(()) } else { Err(format!("session {number} is gone")) };
        };
        if let Some(Line::SubscribeAsked { source, .. }) = in_flight
            && let Some((_, start)) = follows.iter().find(|(of, _)| *of == source)
        {
            self.subscribed(number, source, *start)?;
        }
        if let Some(Line::UnsubscribeAsked { source, .. }) = in_flight
            && follows.iter().all(|(of, _)| *of != source)
        {
            self.unsubscribed(number, source);
        }
        let open = self.session(number).intervals.iter().filter(|interval| interval.end_max.is_none());
        let mut expected: Vec<(usize, u64)> =
            open.map(|interval| (interval.source, interval.start)).collect();
        let mut follows = follows.to_vec();
        expected.sort_unstable();
        follows.sort_unstable();
        match expected == follows {
            true => Ok(()),
            false => Err(format!("session {number} follows {follows:?}, not {expected:?}")),
        }
    }

    /// Whether a session holds what it should, once everything is delivered; each message is
    /// its source and number. `None` if it is not there.
    pub(crate) fn check(&self, number: usize, holds: Option<&[(usize, u64)]>) -> Result<(), String> {
        let nothing = Session::default();
        let session = self.sessions.get(&number).unwrap_or(&nothing);
        let Some(holds) = holds else {
            return match session.intervals.is_empty() {
                true => Ok(()),
                false => Err(format!("session {number} is gone")),
            };
        };
        let mut rest: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        holds.iter().for_each(|(source, message)| rest.entry(*source).or_default().push(*message));
        for (source, messages) in &rest {
            self.check_source(number, session, *source, messages)?;
        }
        let missing = session.intervals.iter().find(|interval| !rest.contains_key(&interval.source));
        match missing {
            Some(interval) => self.check_source(number, session, interval.source, &[]),
            None => Ok(()),
        }
    }

    fn check_source(
        &self,
        number: usize,
        session: &Session,
        source: usize,
        messages: &[u64],
    ) -> Result<(), String> {
        let count = self.counts(source)[0];
        let intervals: Vec<&Interval> =
            session.intervals.iter().filter(|interval| interval.source == source).collect();
        let mut messages = messages.iter().copied().peekable();
        for (position, interval) in intervals.iter().enumerate() {
            let (end_min, end_max) = match interval.end_max {
                Some(end_max) => (interval.end_min, end_max),
                None => (count, count),
            };
            let before_next = intervals.get(position + 1).map_or(u64::MAX, |next| next.start);
            let mut next = interval.start;
            while next < end_max.min(before_next) && messages.next_if_eq(&next).is_some() {
                next += 1;
            }
            if next < end_min.min(before_next) {
                let found = messages.peek();
                return Err(format!(
                    "session {number} lacks message {next} of source {source} (from {}, at least to {end_min}); there is {found:?}",
                    interval.start
                ));
            }
        }
        match messages.next() {
            Some(extra) => {
                Err(format!("session {number} should not hold message {extra} of source {source} there"))
            }
            None => Ok(()),
        }
    }
}

impl Session {
    fn open(&mut self, source: usize) -> Option<&mut Interval> {
        self.intervals.iter_mut().find(|interval| interval.source == source && interval.end_max.is_none())
    }
}

/// A word, then numbers; `-` is nothing.
impl Line {
    pub(crate) fn parse(text: &str) -> Option<Line> {
        let mut words = text.split(' ');
        let word = words.next()?;
        let rest: Vec<&str> = words.collect();
        let numbers: Vec<u64> = rest.iter().filter_map(|word| word.parse().ok()).collect();
        let at = |position: usize| numbers.get(position).map(|number| *number as usize);
        Some(match (word, &numbers[..]) {
            ("publish", [_, number]) => Line::PublishAsked { source: at(0)?, number: *number },
            ("published", [_, number]) => Line::Published { source: at(0)?, number: *number },
            ("subscribe", [_, _]) => Line::SubscribeAsked { session: at(0)?, source: at(1)? },
            ("subscribed", [_, _, start]) => {
                Line::Subscribed { session: at(0)?, source: at(1)?, start: *start }
            }
            ("unsubscribe", [_, _]) => Line::UnsubscribeAsked { session: at(0)?, source: at(1)? },
            ("unsubscribed", [_, _]) => Line::Unsubscribed { session: at(0)?, source: at(1)? },
            ("delete", [_]) => Line::DeleteAsked { session: at(0)? },
            ("deleted", [_]) => Line::Deleted { session: at(0)? },
            ("source", [_, count]) => Line::Source { source: at(0)?, count: *count },
            ("session", [_, pairs @ ..]) => {
                let pairs = pairs.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1])).collect();
                let follows = (rest.last() != Some(&"-")).then_some(pairs);
                Line::Session { session: at(0)?, follows }
            }
            _ => return None,
        })
    }
}

/// The checker works: a good history passes, and every changed one fails. F12: a history without a
/// message acknowledged before the session asked to leave is bad; without one that was still in
/// flight it is good.
#[test]
fn bad_histories_are_found_out() {
    let mut checker = checked(
        "publish 0 0\npublished 0 0\nsubscribe 1 0\nsubscribed 1 0 1\npublish 0 1\npublished 0 1\n\
        unsubscribe 1 0\nunsubscribed 1 0\npublish 0 2\npublished 0 2\nsubscribe 1 0\nsubscribed 1 0 3\n\
        publish 0 3\nsource 0 4\nsession 1 0 3\npublish 0 4\npublished 0 4",
    );
    let good = [(0, 1), (0, 3), (0, 4)];
    checker.check(1, Some(&good)).unwrap();
    let bad: [&[(usize, u64)]; 9] = [
        &[],
        &[(0, 3), (0, 4)],
        &[(0, 1), (0, 4)],
        &[(0, 1), (0, 3)],
        &[(0, 1), (0, 1), (0, 3), (0, 4)],
        &[(0, 1), (0, 3), (0, 4), (0, 4)],
        &[(0, 0), (0, 1), (0, 3), (0, 4)],
        &[(0, 1), (0, 2), (0, 3), (0, 4)],
        &[(0, 3), (0, 1), (0, 4)],
    ];
    for holds in bad {
        assert!(checker.check(1, Some(holds)).is_err(), "{holds:?}");
    }
    assert!(checker.check(1, Some(&[(0, 1), (0, 3), (0, 4), (1, 0)])).is_err(), "a source it never followed");
    assert!(checker.check(1, None).is_err());
    let beside = checked(
        "subscribe 1 0\nsubscribed 1 0 0\npublish 0 0\npublished 0 0\npublish 0 1\nunsubscribe 1 0\n\
        published 0 1\nunsubscribed 1 0",
    );
    assert!(beside.check(1, Some(&[])).is_err(), "lost by leaving");
    beside.check(1, Some(&[(0, 0)])).unwrap();
    beside.check(1, Some(&[(0, 0), (0, 1)])).unwrap();
    assert!(checker.take(&Line::parse("source 0 3").unwrap()).is_err(), "an acknowledged message is gone");
    assert!(checker.take(&Line::parse("session 1").unwrap()).is_err(), "a subscription is gone");
    assert!(checker.take(&Line::parse("session 1 -").unwrap()).is_err(), "a session is gone");
}

fn checked(history: &str) -> Checker {
    let mut checker = Checker::default();
    for line in history.lines() {
        checker.take(&Line::parse(line).unwrap()).unwrap();
    }
    checker
}
