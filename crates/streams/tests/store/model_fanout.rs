//! The model of sessions: every delivery is copied into every session, one by one.

use towpath_model::stream::content_type::Mode;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::state::Shape;
use towpath_streams::{Append, Beyond, Create, FanOut, FanOutMode, Messages, Retention};

use crate::model::{Model, Sub, Wrong};

impl Model {
    /// The sessions that follow a life of a source, by name.
    pub(crate) fn subscribers(&self, life: u64) -> Vec<(String, Sub)> {
        let follow = |subs: &Vec<Sub>| subs.iter().find(|sub| sub.life == life).cloned();
        let sessions =
            self.streams.iter().filter_map(|(id, stream)| Some((id, follow(stream.subs.as_ref()?)?)));
        sessions.map(|(id, sub)| (id.clone(), sub)).collect()
    }

    /// Nothing is due where nobody follows.
    pub(super) fn forget_due(&mut self) {
        let lives: Vec<u64> = self
            .streams
            .values()
            .flat_map(|stream| stream.subs.iter().flatten())
            .map(|sub| sub.life)
            .collect();
        for stream in self.streams.values_mut().filter(|stream| !lives.contains(&stream.life)) {
            stream.due.clear();
        }
    }

    /// Answers whether the session and the subscription are new.
    pub(crate) fn subscribe(
        &mut self,
        session: &str,
        source: &str,
        seconds: u64,
        envelope: bool,
    ) -> Result<(bool, bool), Wrong> {
        let followed = self.usable(source)?;
        let (life, start, content_type) = (followed.life, followed.tail(), followed.content_type.clone());
        if followed.subs.is_some() || (envelope && content_type.mode() != Mode::Json) {
            return Err(Wrong::CannotFollow);
        }
        let mut is_new_session = false;
        match self.usable(session) {
            Ok(there) => {
                let subs = there.subs.as_ref().ok_or(Wrong::CannotFollow)?;
                if there.content_type != content_type {
                    return Err(Wrong::CannotFollow);
                }
                if subs.iter().any(|sub| sub.life == life && sub.envelope != envelope) {
                    return Err(Wrong::CannotFollow);
                }
            }
            Err(Wrong::Deleted) => return Err(Wrong::Conflict),
            Err(_) => {
                let expiry = Some(Expiry::Sliding { seconds });
                let shape = Shape { content_type: Some(content_type), expiry, closed: false, fork: None };
                let create = Create { shape, messages: Messages::default(), retention: Retention::default() };
                self.create(session, &create)?;
                self.streams.get_mut(session).unwrap().subs = Some(Vec::new());
                is_new_session = true;
            }
        }
        let now = self.now;
        let stream = self.streams.get_mut(session).unwrap();
        (stream.used_at, stream.written_at) = (now, now);
        let subs = stream.subs.as_mut().unwrap();
        let is_new = subs.iter().all(|sub| sub.life != life);
        if is_new {
            subs.push(Sub { source: source.to_owned(), life, start, envelope });
        }
        Ok((is_new_session, is_new))
    }

    pub(crate) fn unsubscribe(&mut self, session: &str, source: &str) -> Result<bool, Wrong> {
        let life = self.streams.get(source).map(|source| source.life);
        let subs = self.usable(session)?.subs.as_ref().ok_or(Wrong::NotFound)?;
        if subs.iter().any(|sub| Some(sub.life) == life) {
            self.deliver_due(source);
        }
        let subs = self.usable_mut(session)?.subs.as_mut().ok_or(Wrong::NotFound)?;
        let before = subs.len();
        subs.retain(|sub| Some(sub.life) != life);
        let ended = subs.len() < before;
        self.forget_due();
        Ok(ended)
    }

    pub(crate) fn publish(
        &mut self,
        id: &str,
        append: &Append,
        fan_out: FanOut,
    ) -> Result<(u64, bool, usize, FanOutMode), Wrong> {
        let (tail, is_duplicate) = self.append(id, append)?;
        let source = self.usable(id)?;
        let written = if is_duplicate { 0 } else { append.messages.ends.len() };
        let subscribers = self.subscribers(source.life);
        let is_next = source.due.len() == written;
        let mode = if source.due.is_empty() {
            FanOutMode::Inline
        } else if subscribers.len() > fan_out.inline_max {
            match fan_out.beyond {
                Beyond::Skip if is_next => {
                    self.usable_mut(id)?.due.clear();
                    FanOutMode::Skipped
                }
                _ => FanOutMode::Queued,
            }
        } else if subscribers.iter().any(|(_, sub)| sub.envelope) && !is_next {
            FanOutMode::Queued
        } else {
            self.fan_out(id)?;
            FanOutMode::Inline
        };
        Ok((tail, is_duplicate, subscribers.len(), mode))
    }

    /// Delivers all that is due, even of an expired source that is not removed yet.
    pub(crate) fn fan_out(&mut self, id: &str) -> Result<(), Wrong> {
        match self.streams.get(id) {
            None => return Err(Wrong::NotFound),
            Some(source) if source.deleted => return Err(Wrong::Deleted),
            Some(_) => self.deliver_due(id),
        }
        Ok(())
    }

    /// F12: subscribers get what is due, even when one of them leaves or the source ends.
    pub(super) fn deliver_due(&mut self, id: &str) {
        let Some(source) = self.streams.get_mut(id).filter(|source| !source.deleted) else { return };
        let (life, due) = (source.life, std::mem::take(&mut source.due));
        for (end, message) in due {
            for (session, sub) in self.subscribers(life) {
                if end - message.len() as u64 >= sub.start {
                    let message = if sub.envelope { wrap(id, end, &message) } else { message.clone() };
                    self.streams.get_mut(&session).unwrap().messages.push(message);
                }
            }
        }
    }
}

fn wrap(id: &str, end: u64, message: &[u8]) -> Vec<u8> {
    let offset = Offset::new(end);
    let value = message.strip_suffix(b",").unwrap_or(message);
    [format!("{{\"stream\":\"{id}\",\"offset\":\"{offset}\",\"data\":").as_bytes(), value, b"},"].concat()
}
