//! The worker behind subscriptions: wakes the workers that have work, ends leases that ran out, and
//! retries failed deliveries.
//!
//! Hints say which streams grew. The worker also polls for what is due, so a lost hint only
//! costs time.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use towpath_model::stream::content_type::Mode;
use towpath_model::stream::json as json_mode;
use towpath_model::stream::name::{StreamName, encode};
use towpath_model::stream::offset::Offset;
use towpath_model::stream::subscription::{Change, Kind, Subscription};
use towpath_streams::{Append, Error, List, Messages};

use super::{Entry, State, Subscriptions, now, wake_id};
use crate::limits;

impl Subscriptions {
    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        self.catch_up().await;
        loop {
            tokio::select! {
                () = self.0.news.notified() => {}
                () = tokio::time::sleep(limits::SUBSCRIPTION_TICK) => {}
                () = shutdown.cancelled() => return,
            }
            self.run_once().await;
        }
    }

    /// One pass over everything that grew and everything that is due.
    pub(crate) async fn run_once(&self) {
        let grown = {
            let mut grown = self.0.grown.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *grown)
        };
        for entry in self.entries() {
            let mut state = entry.state.lock().await;
            let mine = grown.iter().filter(|name| *name.project == *entry.key.project);
            let names: Vec<&StreamName> = mine.collect();
            if let Err(error) = self.look(&entry, &mut state, &names).await {
                tracing::warn!(%error, subscription = entry.key.id, "cannot process a subscription");
            }
        }
    }

    async fn look(&self, entry: &Arc<Entry>, state: &mut State, grown: &[&StreamName]) -> Result<(), Error> {
        if state.is_gone {
            return Ok(());
        }
        let mut changes: Vec<Change> = vec![];
        for name in grown {
            changes.extend(self.followed(&state.subscription, name));
        }
        let expired = state.subscription.expire(now());
        let retries = state.subscription.retry_at.is_some_and(|until| until <= now());
        let due = expired.is_some() || retries;
        changes.extend(expired);
        state.write(self.store(), changes).await?;
        let pending = |name: &&StreamName| {
            let tail = self.tail(&entry.key.project, &name.id);
            state.subscription.is_pending(&name.id, tail)
        };
        if due || grown.iter().any(pending) {
            self.wake(entry, state).await?;
        }
        Ok(())
    }

    /// A stream grew for the first time, or was deleted.
    pub(super) fn followed(&self, subscription: &Subscription, name: &StreamName) -> Option<Change> {
        match self.store().head(name) {
            Ok(_) => subscription.link_matching(&name.id, None),
            Err(_) => {
                let linked = subscription.links.contains_key(&*name.id);
                linked.then(|| Change::Unlinked { stream: name.id.to_string() })
            }
        }
    }

    /// Wakes if there is work and no wake in flight. Returns whether it did.
    pub(super) async fn wake(&self, entry: &Arc<Entry>, state: &mut State) -> Result<bool, Error> {
        let pending = state.subscription.pending(|stream| self.tail(&entry.key.project, stream));
        let first = pending.keys().next().cloned();
        let Some(woken) = state.subscription.wake(pending, wake_id(), now()) else { return Ok(false) };
        state.write(self.store(), vec![woken]).await?;
        match &state.subscription.config.kind {
            Kind::Webhook { .. } => self.deliver(entry.clone(), &state.subscription),
            Kind::PullWake { .. } => self.announce(entry, &state.subscription, first.as_deref()).await,
        }
        Ok(true)
    }

    /// Notifies the workers of a pull-wake subscription.
    async fn announce(&self, entry: &Entry, subscription: &Subscription, stream: Option<&str>) {
        let Kind::PullWake { wake_stream } = &subscription.config.kind else { return };
        let event = json!({
            "type": "wake",
            "subscription_id": entry.key.id,
            "stream": stream,
            "generation": subscription.generation,
            "ts": now().as_millisecond(),
        });
        let Some(name) = StreamName::new(&entry.key.project, wake_stream) else { return };
        let appended = match self.store().head(&name) {
            Ok(head) => self.store().append(name, note(&event, head.content_type.mode())).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = appended {
            // Workers can still claim without a notification.
            tracing::warn!(%error, subscription = entry.key.id, "cannot send a wake-up");
        }
    }

    /// Sends a webhook in the background, which also records its outcome.
    fn deliver(&self, entry: Arc<Entry>, subscription: &Subscription) {
        let Kind::Webhook { url } = &subscription.config.kind else { return };
        let (url, generation) = (url.clone(), subscription.generation);
        let body = self.webhook_body(&entry, subscription).to_string();
        let wait_max = Duration::from_millis(subscription.config.lease_ms);
        let this = self.clone();
        tokio::spawn(async move {
            // The semaphore is never closed; without a permit there would be no bound.
            let Ok(_permit) = this.0.deliveries.clone().acquire_owned().await else { return };
            let signature = this.0.keys.sign(&body, now());
            let answer = this.0.sender.send(&url, body, signature, wait_max).await;
            let mut state = entry.state.lock().await;
            if state.is_gone {
                return;
            }
            let changes = match answer {
                Ok(answer) => state.subscription.delivered(generation, answer.done, now()),
                Err(reason) => {
                    tracing::info!(reason, subscription = entry.key.id, "webhook failed");
                    state.subscription.failed(generation, now(), fastrand::f64()).into_iter().collect()
                }
            };
            let written = async {
                state.write(this.store(), changes).await?;
                this.wake(&entry, &mut state).await
            };
            if let Err(error) = written.await {
                tracing::warn!(%error, subscription = entry.key.id, "cannot record a delivery");
            }
        });
    }

    fn webhook_body(&self, entry: &Entry, subscription: &Subscription) -> Value {
        let wake_id = subscription.wake.as_ref().map(|wake| &wake.id);
        json!({
            "subscription_id": entry.key.id,
            "wake_id": wake_id,
            "generation": subscription.generation,
            "streams": self.stream_infos(entry, subscription),
            "callback_url": self.action_url(entry, "callback"),
            "callback_token": self.0.keys.token(&entry.subject(), subscription.generation, now()),
        })
    }

    /// The followed streams, with what waits in each.
    pub(super) fn stream_infos(&self, entry: &Entry, subscription: &Subscription) -> Vec<Value> {
        let infos = subscription.links.iter().map(|(path, link)| {
            let tail = self.tail(&entry.key.project, path);
            json!({
                "path": path,
                "link_type": if link.explicit { "explicit" } else { "glob" },
                "acked_offset": link.acked.map_or_else(|| "-1".to_owned(), |acked| acked.to_string()),
                "tail_offset": tail.to_string(),
                "has_pending": subscription.is_pending(path, tail),
            })
        });
        infos.collect()
    }

    pub(super) fn action_url(&self, entry: &Entry, action: &str) -> String {
        let id = encode(&entry.key.id).replace('/', "%2F");
        format!("{}{}/subscriptions/{id}/{action}", self.0.base_url, root(&entry.key.project))
    }

    /// After a start, any stream may have grown.
    async fn catch_up(&self) {
        for entry in self.entries() {
            self.catch_up_one(&entry).await;
        }
    }

    /// Follows streams that match and are not followed yet, from their beginning, and wakes
    /// the subscription if it has work.
    pub(super) async fn catch_up_one(&self, entry: &Arc<Entry>) {
        let mut state = entry.state.lock().await;
        let result = async {
            let names = self.matching(&entry.key.project, &state.subscription).await?;
            let unfollowed =
                names.iter().filter_map(|(name, _)| state.subscription.link_matching(name, None));
            let changes = unfollowed.collect();
            state.write(self.store(), changes).await?;
            if let Some(wake) = state.subscription.wake.as_ref().filter(|wake| wake.lease_until.is_none()) {
                let stream = wake.tails.keys().next().cloned();
                self.announce(entry, &state.subscription, stream.as_deref()).await;
            }
            self.wake(entry, &mut state).await
        };
        if let Err(error) = result.await {
            tracing::warn!(%error, subscription = entry.key.id, "cannot catch up a subscription");
        }
    }

    /// The project's streams that match the pattern, and their tails.
    pub(super) async fn matching(
        &self,
        project: &str,
        subscription: &Subscription,
    ) -> Result<Vec<(String, Offset)>, Error> {
        let mut found = vec![];
        let Some(pattern) = &subscription.config.pattern else { return Ok(found) };
        let prefix = pattern.split('*').next().unwrap_or_default().to_owned();
        let mut after = None;
        loop {
            let list =
                List { project: project.into(), prefix: prefix.clone(), after, limit: limits::LIST_MAX };
            let page = self.store().list(list).await?;
            let fits = page.iter().filter(|(name, _)| subscription.matches(&name.id));
            let users = fits.filter(|(name, _)| !name.is_reserved());
            found.extend(users.map(|(name, head)| (name.id.to_string(), head.tail)));
            match page.last() {
                Some((name, _)) if page.len() == limits::LIST_MAX => after = Some(name.id.to_string()),
                _ => return Ok(found),
            }
        }
    }
}

impl Entry {
    /// The name that its tokens carry.
    pub(super) fn subject(&self) -> String {
        format!("{}/{}", self.key.project, self.key.id)
    }
}

/// The reserved root of a project.
pub(super) fn root(project: &str) -> String {
    match project {
        towpath_model::stream::name::DEFAULT_PROJECT => "/v1/stream/__ds".to_owned(),
        project => format!("/v1/{project}/stream/__ds"),
    }
}

/// A message for a wake stream of any content type; in text streams it is a line.
fn note(event: &Value, mode: Mode) -> Append {
    let text = event.to_string();
    let messages = match mode {
        Mode::Json => {
            let run = json_mode::flatten(text.as_bytes()).expect("a value we wrote is JSON");
            Messages { data: run.data.into(), ends: run.ends }
        }
        Mode::Text | Mode::Bytes => Messages::one(text + "\n"),
    };
    Append { messages, ..Append::default() }
}
