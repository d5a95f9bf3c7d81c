//! Requests to the reserved API.

use std::sync::Arc;

use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use towpath_model::stream::name::{StreamName, decode};
use towpath_model::stream::subscription::{
    Change, Config, Fence, Kind, Refusal, Subscription, Worked, named_streams,
};
use towpath_streams::Error;

use super::keys::BadToken;
use super::webhook;
use super::{Entry, Journal, Key, State, Subscriptions, now};
use crate::body::Body;
use crate::stream::refusal::Refusal as Refused;
use crate::stream::{Answer, empty, request, with_body};
use crate::upload::Upload;

/// What a path below `__ds/` asks for.
enum Route {
    Keys,
    Base(Key),
    Streams(Key),
    Stream(Key, String),
    Act(Key, Action),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Callback,
    Claim,
    Ack,
    Release,
}

/// The largest body; acks of a few thousand streams fit.
const BODY_BYTES_MAX: usize = 1 << 20;

impl Subscriptions {
    /// Answers a request to `__ds/{rest}`.
    pub(crate) async fn answer(&self, project: &str, rest: &str, request: Request<Upload>) -> Answer {
        let Some(route) = Route::parse(project, rest) else {
            return Ok(failure(
                StatusCode::NOT_FOUND,
                "SUBSCRIPTION_NOT_FOUND",
                "there is nothing at this path",
            ));
        };
        let (parts, body) = request.into_parts();
        let body = request::body(body, BODY_BYTES_MAX).await?;
        let body: Value = match body.is_empty() {
            true => json!({}),
            false => match serde_json::from_slice(&body) {
                Ok(body) => body,
                Err(_) => return Ok(invalid("the body is not valid JSON")),
            },
        };
        match (route, &parts.method) {
            (Route::Keys, &Method::GET) => Ok(self.keys()),
            (Route::Base(key), &Method::PUT) => self.create(key, &body).await,
            (Route::Base(key), &Method::GET) => self.show(&key).await,
            (Route::Base(key), &Method::DELETE) => self.delete(&key).await,
            (Route::Streams(key), &Method::POST) => self.add_streams(&key, &body).await,
            (Route::Stream(key, stream), &Method::DELETE) => self.remove_stream(&key, &stream).await,
            (Route::Act(key, action), &Method::POST) => self.act(&key, action, &parts, &body).await,
            (route, _) => Err(Refused::method(route.allowed())),
        }
    }

    fn keys(&self) -> Response<Body> {
        let mut response = reply(StatusCode::OK, &self.0.keys.public());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
        response
    }

    async fn create(&self, key: Key, body: &Value) -> Answer {
        let config = match Config::parse(body) {
            Ok(config) if key.is_valid() => config,
            Ok(_) => return Ok(invalid("the subscription's id is too long")),
            Err(why) => return Ok(invalid(why.0)),
        };
        match &config.kind {
            Kind::Webhook { url } => {
                if let Err(why) = webhook::check(url, self.0.reach) {
                    return Ok(failure(StatusCode::BAD_REQUEST, "WEBHOOK_URL_REJECTED", why));
                }
            }
            Kind::PullWake { wake_stream } => {
                if StreamName::new(&key.project, wake_stream).is_none() {
                    return Ok(invalid("wake_stream is not a valid stream name"));
                }
            }
        }
        let _one_at_a_time = self.0.creating.lock().await;
        if let Some(entry) = self.get(&key) {
            let state = entry.state.lock().await;
            return Ok(match state.subscription.config == config {
                true => reply(StatusCode::OK, &self.describe(&entry, &state.subscription)),
                false => failure(
                    StatusCode::CONFLICT,
                    "SUBSCRIPTION_ALREADY_EXISTS",
                    "the subscription exists with another configuration",
                ),
            });
        }
        let mut subscription = Subscription::new(config, now());
        for stream in subscription.config.streams.clone() {
            let tail = self.tail(&key.project, &stream);
            subscription.apply(Subscription::link_named(&stream, tail));
        }
        for (stream, tail) in self.matching(&key.project, &subscription).await? {
            if let Some(linked) = subscription.link_matching(&stream, Some(tail)) {
                subscription.apply(linked);
            }
        }
        let journal = Journal::create(self.store(), &key, &subscription).await?;
        let entry = Entry::new(key, subscription.clone(), journal);
        let answer = reply(StatusCode::CREATED, &self.describe(&entry, &subscription));
        self.insert(entry.clone());
        // Whatever appeared since the streams were listed was not seen by anybody.
        self.catch_up_one(&entry).await;
        Ok(answer)
    }

    async fn show(&self, key: &Key) -> Answer {
        let Some(entry) = self.get(key) else { return Ok(not_found()) };
        let state = entry.state.lock().await;
        Ok(reply(StatusCode::OK, &self.describe(&entry, &state.subscription)))
    }

    async fn delete(&self, key: &Key) -> Answer {
        if let Some(entry) = self.get(key) {
            let mut state = entry.state.lock().await;
            state.journal.delete(self.store()).await?;
            state.is_gone = true;
            self.remove(key);
        }
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn add_streams(&self, key: &Key, body: &Value) -> Answer {
        let Some(streams) = named_streams(body).filter(|streams| !streams.is_empty()) else {
            return Ok(invalid("streams must be a list of names"));
        };
        let Some(entry) = self.get(key) else { return Ok(not_found()) };
        let changes =
            streams.iter().map(|stream| Subscription::link_named(stream, self.tail(&key.project, stream)));
        entry.state.lock().await.write(self.store(), changes.collect()).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn remove_stream(&self, key: &Key, stream: &str) -> Answer {
        let Some(entry) = self.get(key) else { return Ok(not_found()) };
        let mut state = entry.state.lock().await;
        let changes = state.subscription.unlink_named(stream);
        state.write(self.store(), changes).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn act(&self, key: &Key, action: Action, parts: &Parts, body: &Value) -> Answer {
        let Some(entry) = self.get(key) else { return Ok(not_found()) };
        let mut state = entry.state.lock().await;
        let is_pull = matches!(state.subscription.config.kind, Kind::PullWake { .. });
        if is_pull == (action == Action::Callback) {
            return Ok(invalid("this type of subscription does not have this action"));
        }
        if action == Action::Claim {
            return self.claim(&entry, &mut state, body).await;
        }
        let fence = match self.fence(&entry, parts, body) {
            Ok(fence) => fence,
            Err(failure) => return Ok(*failure),
        };
        let changes = match action {
            Action::Release => state.subscription.release(&fence).map(|change| vec![change]),
            _ => {
                let tail = |stream: &str| self.tail(&entry.key.project, stream);
                state.subscription.worked(&fence, &Worked::parse(body), tail, now())
            }
        };
        let changes = match changes {
            Ok(changes) => changes,
            Err(refusal) => return Ok(refused(refusal)),
        };
        let ended = changes.contains(&Change::Ended);
        state.write(self.store(), changes).await?;
        let next_wake = ended && self.wake(&entry, &mut state).await?;
        Ok(match action {
            Action::Release => empty(StatusCode::NO_CONTENT),
            _ => reply(StatusCode::OK, &json!({ "ok": true, "next_wake": next_wake })),
        })
    }

    /// A worker claims the wake. If there is work and no wake yet, this creates one.
    async fn claim(&self, entry: &Arc<Entry>, state: &mut State, body: &Value) -> Answer {
        let Some(worker) = body["worker"].as_str().filter(|worker| !worker.is_empty()) else {
            return Ok(invalid("worker is missing"));
        };
        if state.subscription.wake.is_none() {
            let grown = self.grown_in(&entry.key.project);
            let changes = grown.iter().filter_map(|name| self.followed(&state.subscription, name));
            state.write(self.store(), changes.collect()).await?;
            self.wake(entry, state).await?;
        }
        let held = match state.subscription.claim(worker, now()) {
            Ok(held) => held,
            Err(refusal) => return Ok(refused(refusal)),
        };
        state.write(self.store(), vec![held]).await?;
        let subscription = &state.subscription;
        Ok(reply(
            StatusCode::OK,
            &json!({
                "wake_id": subscription.wake.as_ref().map(|wake| &wake.id),
                "generation": subscription.generation,
                "token": self.0.keys.token(&entry.subject(), subscription.generation, now()),
                "streams": self.stream_infos(entry, subscription),
                "lease_ttl_ms": subscription.config.lease_ms,
            }),
        ))
    }

    /// The wake that the request is for, proved by its token.
    fn fence(&self, entry: &Entry, parts: &Parts, body: &Value) -> Result<Fence, Box<Response<Body>>> {
        let unauthorized = |code, why| Box::new(failure(StatusCode::UNAUTHORIZED, code, why));
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|text| text.strip_prefix("Bearer ")).ok_or_else(|| {
            unauthorized("TOKEN_INVALID", "a token is required: send Authorization: Bearer TOKEN")
        })?;
        let token_generation =
            self.0.keys.verify(token, &entry.subject(), now()).map_err(|bad| match bad {
                BadToken::Invalid => unauthorized("TOKEN_INVALID", "the token is invalid"),
                BadToken::Expired => unauthorized("TOKEN_EXPIRED", "the token has expired"),
            })?;
        Ok(Fence {
            token_generation,
            generation: body["generation"].as_u64(),
            wake_id: body["wake_id"].as_str().map(str::to_owned),
        })
    }

    fn describe(&self, entry: &Entry, subscription: &Subscription) -> Value {
        let config = &subscription.config;
        let root = super::worker::root(&entry.key.project);
        let jwks_url = format!("{}{root}/jwks.json", self.0.base_url);
        let mut body = json!({
            "id": entry.key.id,
            "subscription_id": entry.key.id,
            "type": config.kind.word(),
            "pattern": config.pattern,
            "streams": self.stream_infos(entry, subscription),
            "lease_ttl_ms": config.lease_ms,
            "description": config.description,
            "created_at": subscription.created_at,
            "status": if subscription.failures == 0 { "active" } else { "failed" },
            "generation": subscription.generation,
            "next_attempt_at": subscription.retry_at,
        });
        match &config.kind {
            Kind::PullWake { wake_stream } => body["wake_stream"] = json!(wake_stream),
            Kind::Webhook { url } => {
                let signing = json!({ "alg": "ed25519", "kid": self.0.keys.id(), "jwks_url": jwks_url });
                body["webhook"] = json!({ "url": url, "signing": signing });
            }
        }
        body
    }
}

impl Route {
    fn allowed(&self) -> &'static str {
        match self {
            Route::Keys => "GET, OPTIONS",
            Route::Base(_) => "GET, PUT, DELETE, OPTIONS",
            Route::Stream(..) => "DELETE, OPTIONS",
            Route::Streams(_) | Route::Act(..) => "POST, OPTIONS",
        }
    }

    fn parse(project: &str, rest: &str) -> Option<Route> {
        if rest == "jwks.json" {
            return Some(Route::Keys);
        }
        let rest = rest.strip_prefix("subscriptions/")?;
        let (id, rest) = rest.split_once('/').map_or((rest, None), |(id, rest)| (id, Some(rest)));
        let key = Key { project: project.to_owned(), id: decode(id).filter(|id| !id.is_empty())? };
        Some(match rest {
            None => Route::Base(key),
            Some("streams") => Route::Streams(key),
            Some("callback") => Route::Act(key, Action::Callback),
            Some("claim") => Route::Act(key, Action::Claim),
            Some("ack") => Route::Act(key, Action::Ack),
            Some("release") => Route::Act(key, Action::Release),
            Some(other) => {
                let stream = decode(other.strip_prefix("streams/")?)?;
                Route::Stream(key, stream.trim_matches('/').to_owned())
            }
        })
    }
}

fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = with_body(status, Body::from(body.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The protocol gives this API its own form of error.
fn failure(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    reply(status, &json!({ "error": { "code": code, "message": message } }))
}

fn invalid(message: &str) -> Response<Body> {
    failure(StatusCode::BAD_REQUEST, "INVALID_REQUEST", message)
}

fn not_found() -> Response<Body> {
    failure(StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND", "there is no such subscription")
}

fn refused(refusal: Refusal) -> Response<Body> {
    match refusal {
        Refusal::Fenced => failure(StatusCode::CONFLICT, "FENCED", "a newer wake-up replaced this one"),
        Refusal::NothingPending => {
            failure(StatusCode::CONFLICT, "NO_PENDING_WORK", "there is no pending work")
        }
        Refusal::NotPullWake => invalid("the subscription is not pull-wake"),
        Refusal::Offset(why) => failure(StatusCode::CONFLICT, "INVALID_OFFSET", why),
        Refusal::Claimed { holder, generation } => {
            let message = "another worker has claimed it";
            let error = json!({ "code": "ALREADY_CLAIMED", "message": message,
                "current_holder": holder, "generation": generation });
            reply(StatusCode::CONFLICT, &json!({ "error": error }))
        }
    }
}

/// Whether a path below `__ds/` is for the worker that was woken, with the token of that wake, or for
/// everybody. Those paths check it themselves.
pub(crate) fn brings_its_own_token(rest: &str) -> bool {
    matches!(
        Route::parse("", rest),
        Some(Route::Keys | Route::Act(_, Action::Callback | Action::Ack | Action::Release))
    )
}

/// The path of the OpenAPI document that describes `__ds/{rest}`.
#[cfg(test)]
pub(crate) fn template(rest: &str) -> Option<&'static str> {
    Some(match Route::parse("", rest)? {
        Route::Keys => "jwks.json",
        Route::Base(_) => "subscriptions/{subscriptionId}",
        Route::Streams(_) => "subscriptions/{subscriptionId}/streams",
        Route::Stream(..) => "subscriptions/{subscriptionId}/streams/{stream}",
        Route::Act(_, Action::Callback) => "subscriptions/{subscriptionId}/callback",
        Route::Act(_, Action::Claim) => "subscriptions/{subscriptionId}/claim",
        Route::Act(_, Action::Ack) => "subscriptions/{subscriptionId}/ack",
        Route::Act(_, Action::Release) => "subscriptions/{subscriptionId}/release",
    })
}

/// The reserved API when it could not be opened.
pub(crate) fn unavailable() -> Refused {
    Refused::from(Error::Busy("the server could not load subscriptions at startup"))
}
