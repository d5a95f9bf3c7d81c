//! Where the streams of sessions are: in the store of this process, or on another server.

use std::sync::Arc;

use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::StreamName;
use towpath_streams::{Answer, Append, FanOut, FanOutMode, Store};

use super::PublishOutcome;

/// The streams of sessions. Sources are always in the store of this process: they are the queue.
pub(crate) trait SessionStreams: Send + Sync + 'static {
    /// What is known of the stream of a session.
    fn head<'a>(&'a self, session: &'a StreamName) -> Answer<'a, SessionHead>;

    /// Creates the stream of a session before the session is registered. True if it is new and
    /// must be deleted again should the registration fail.
    fn create<'a>(&'a self, session: &'a StreamName, new: NewStream) -> Answer<'a, bool>;

    /// Appends to a source, durably first, and delivers as far as `fan_out` wants it now.
    fn publish(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, PublishOutcome>;

    /// Delivers a part of what waits in a source. Repeating it, even after a crash, delivers
    /// nothing twice.
    fn deliver(&self, source: StreamName) -> Answer<'_, Delivered>;

    /// Ends a subscription. The session still gets what was acknowledged before. False if there
    /// was no subscription.
    fn unsubscribe(&self, session: StreamName, source: StreamName) -> Answer<'_, bool>;

    /// Delivers what waits in a source that is about to be deleted, unless the deletion does so.
    fn finish<'a>(&'a self, source: &'a StreamName) -> Answer<'a, ()>;

    /// Renews the life of a session's stream.
    fn touch<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()>;

    /// Deletes a session with its stream and its subscriptions.
    fn delete<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()>;
}

/// What is known of a session's stream.
#[derive(Debug, Clone)]
pub(crate) struct SessionHead {
    pub(crate) content_type: ContentType,
    /// Its tail, in the offset format of its server.
    pub(crate) next_offset: String,
    /// Where it is read.
    pub(crate) path: String,
}

/// A session's stream to create.
#[derive(Debug, Clone)]
pub(crate) struct NewStream {
    pub(crate) content_type: ContentType,
    pub(crate) ttl_seconds: u64,
}

/// The result of one step of a delivery. Deleted sessions are in neither count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) successes: usize,
    pub(crate) failures: usize,
    /// Bytes of the source that still wait.
    pub(crate) lag_bytes: u64,
}

/// Sessions of this process: the store delivers to all of them with one record.
pub(crate) struct Local(pub(crate) Arc<dyn Store>);

impl SessionStreams for Local {
    fn head<'a>(&'a self, session: &'a StreamName) -> Answer<'a, SessionHead> {
        Box::pin(async move {
            let head = self.0.head(session)?;
            let (content_type, next_offset) = (head.content_type, head.tail.to_string());
            Ok(SessionHead { content_type, next_offset, path: session.path() })
        })
    }

    /// The registration creates it, in the same commit.
    fn create<'a>(&'a self, _session: &'a StreamName, _new: NewStream) -> Answer<'a, bool> {
        Box::pin(async { Ok(false) })
    }

    fn publish(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, PublishOutcome> {
        Box::pin(async move {
            let published = self.0.publish(source, append, fan_out).await?;
            let successes = if published.mode == FanOutMode::Inline { published.subscribers } else { 0 };
            Ok(PublishOutcome::new(&published, successes))
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

    /// The commit that deletes the source delivers first.
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
