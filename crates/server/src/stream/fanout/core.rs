//! The one interface between sessions and the streams under them, and the streams here.

use std::sync::Arc;

use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::StreamName;
use towpath_streams::{Answer, Append, Appended, FanOut, FanOutMode, Store};

/// Where the streams of sessions are. Sources are always here: they are the queue.
pub(crate) trait Core: Send + Sync + 'static {
    /// What is known of a session's stream.
    fn head<'a>(&'a self, session: &'a StreamName) -> Answer<'a, Seen>;

    /// Makes sure that a session's stream is there before the session is registered; true if
    /// it was not and must go again should that fail.
    fn put<'a>(&'a self, session: &'a StreamName, new: NewStream) -> Answer<'a, bool>;

    /// Appends to a source, durable first, and delivers as far as `fan_out` wants it now.
    fn append(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, Sent>;

    /// Delivers some of what waits in a source. Repeating it, after a crash too, delivers
    /// nothing twice.
    fn deliver(&self, source: StreamName) -> Answer<'_, Delivered>;

    /// Ends a subscription. What was acknowledged before still reaches the session. False if it
    /// did not follow.
    fn unsubscribe(&self, session: StreamName, source: StreamName) -> Answer<'_, bool>;

    /// Delivers what waits in a source that is about to be deleted, unless deleting does that.
    fn finish<'a>(&'a self, source: &'a StreamName) -> Answer<'a, ()>;

    /// Lets a session's stream live longer.
    fn touch<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()>;

    /// Deletes a session with its stream and its subscriptions.
    fn delete<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()>;
}

/// A session's stream.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) content_type: ContentType,
    /// Its tail, as that server writes offsets.
    pub(crate) next_offset: String,
    /// Where it is read.
    pub(crate) path: String,
}

/// A session's stream to make.
#[derive(Debug, Clone)]
pub(crate) struct NewStream {
    pub(crate) content_type: ContentType,
    pub(crate) ttl_seconds: u64,
}

/// What a publish came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) appended: Appended,
    pub(crate) subscribers: usize,
    pub(crate) mode: FanOutMode,
    pub(crate) successes: usize,
    pub(crate) failures: usize,
}

/// What one step of a delivery came to. Sessions that are gone are in neither number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) successes: usize,
    pub(crate) failures: usize,
    /// Bytes of the source that still wait.
    pub(crate) lag_bytes: u64,
}

/// Sessions here: the store delivers to all of them with one record.
pub(crate) struct Local(pub(crate) Arc<dyn Store>);

impl Core for Local {
    fn head<'a>(&'a self, session: &'a StreamName) -> Answer<'a, Seen> {
        Box::pin(async move {
            let head = self.0.head(session)?;
            let (content_type, next_offset) = (head.content_type, head.tail.to_string());
            Ok(Seen { content_type, next_offset, path: session.path() })
        })
    }

    /// The registration itself makes it, in one commit.
    fn put<'a>(&'a self, _session: &'a StreamName, _new: NewStream) -> Answer<'a, bool> {
        Box::pin(async { Ok(false) })
    }

    fn append(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, Sent> {
        Box::pin(async move {
            let published = self.0.publish(source, append, fan_out).await?;
            let successes = if published.mode == FanOutMode::Inline { published.subscribers } else { 0 };
            Ok(Sent {
                appended: published.appended,
                subscribers: published.subscribers,
                mode: published.mode,
                successes,
                failures: 0,
            })
        })
    }

    fn deliver(&self, source: StreamName) -> Answer<'_, Delivered> {
        Box::pin(async move {
            let done = self.0.fan_out(source).await?;
            Ok(Delivered { successes: done.subscribers, failures: 0, lag_bytes: done.lag_bytes })
        })
    }

    fn unsubscribe(&self, session: StreamName, source: StreamName) -> Answer<'_, bool> {
        self.0.unsubscribe(session, source)
    }

    /// The store does it, in the commit that deletes the source.
    fn finish<'a>(&'a self, _source: &'a StreamName) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn touch<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()> {
        Box::pin(async { self.0.touch(session).map(drop) })
    }

    fn delete<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()> {
        self.0.delete(session.clone())
    }
}
