//! Sessions over HTTP: subscribe, unsubscribe, publish, get, touch, delete.

use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use towpath_model::circuit::State;
use towpath_model::session::{self, Pair, Route};
use towpath_model::stream::name::{SESSION_PREFIX, StreamName};
use towpath_model::token::Action;
use towpath_streams::{Head, List};

use super::fanout::Source;
use super::refusal::Refusal;
use super::request::{self, query};
use super::{Answer, Streams, headers, with_body};
use crate::body::Body;
use crate::limits::{LIST_MAX, SESSION_BODY_BYTES_MAX};
use crate::project::Pass;
use crate::upload::Upload;

impl Streams {
    pub(super) async fn sessions(
        &self,
        project: Arc<str>,
        route: Route,
        pass: &Pass,
        request: Request<Upload>,
    ) -> Answer {
        session::check_project(&project)?;
        let method = request.method().clone();
        match (route, method) {
            (Route::Subscribe, Method::POST) => self.subscribe(&project, pass, request).await,
            (Route::Unsubscribe, Method::DELETE) => self.unsubscribe(&project, pass, request).await,
            (Route::Publish(stream), Method::POST) => {
                let source = session::source(&project, &stream)?;
                pass.check(Action::Write(&source.id))?;
                self.publish(source, request).await
            }
            (Route::Session(id), Method::GET) => {
                let id = session::session_id(&id)?;
                pass.check(Action::GetSession(&id))?;
                self.get_session(session_name(&project, &id)?).await
            }
            (Route::Session(id), Method::DELETE) => {
                let id = session::session_id(&id)?;
                pass.check(Action::DeleteSession(&id))?;
                let name = session_name(&project, &id)?;
                self.fan_outs().delete(&name).await?;
                Ok(reply(StatusCode::OK, &json!({ "sessionId": id, "deleted": true })))
            }
            (Route::Touch(id), Method::POST) => {
                let id = session::session_id(&id)?;
                pass.check(Action::TouchSession(&id))?;
                let touched = self.fan_outs().touch(&session_name(&project, &id)?).await?;
                let expires_at = milliseconds(&touched.head);
                Ok(reply(StatusCode::OK, &json!({ "sessionId": id, "expiresAt": expires_at })))
            }
            (Route::Sessions, Method::GET) => {
                pass.check(Action::Manage)?;
                self.list_sessions(project, request.uri().query()).await
            }
            (Route::Sources, Method::GET) => {
                pass.check(Action::Manage)?;
                self.list_sources(&project, request.uri().query())
            }
            (route, _) => Err(Refusal::method(allowed(&route))),
        }
    }

    async fn subscribe(&self, project: &str, pass: &Pass, request: Request<Upload>) -> Answer {
        let pair = pair(request).await?;
        let (session, id) = pair_session(project, &pair)?;
        let source = session::source(project, &pair.stream_id)?;
        pass.check(Action::Subscribe { session: &id, stream: &source.id })?;
        self.refuse_one_more(&session)?;
        let subscribed = self.fan_outs().subscribe(session.clone(), source, pair.envelope).await?;
        let body = session::Subscribed {
            session_id: id,
            stream_id: pair.stream_id,
            session_stream_path: self.fan_outs().path(&session),
            expires_at: milliseconds(&subscribed.head),
            is_new_session: subscribed.is_new_session,
        };
        Ok(reply(StatusCode::OK, &json!(body)))
    }

    async fn unsubscribe(&self, project: &str, pass: &Pass, request: Request<Upload>) -> Answer {
        let pair = pair(request).await?;
        let (session, id) = pair_session(project, &pair)?;
        let source = session::source(project, &pair.stream_id)?;
        pass.check(Action::Unsubscribe { session: &id, stream: &source.id })?;
        let was = self.fan_outs().unsubscribe(session, source).await?;
        let body = json!({ "sessionId": id, "streamId": pair.stream_id, "unsubscribed": was });
        Ok(reply(StatusCode::OK, &body))
    }

    async fn get_session(&self, name: StreamName) -> Answer {
        let (session, seen) = self.fan_outs().session(&name).await?;
        let subscriptions: Vec<Value> = session
            .subscriptions
            .iter()
            .map(|subscription| {
                json!({
                    "streamId": &*subscription.source.id,
                    "subscribedAt": subscription.since.as_millisecond(),
                    "startOffset": subscription.start.to_string(),
                    "envelope": subscription.envelope,
                })
            })
            .collect();
        let body = json!({
            "sessionId": name.session_id(),
            "sessionStreamPath": seen.path,
            "contentType": seen.content_type.as_str(),
            "nextOffset": seen.next_offset,
            "createdAt": session.head.created_at.as_millisecond(),
            "expiresAt": milliseconds(&session.head),
            "subscriptions": subscriptions,
        });
        Ok(reply(StatusCode::OK, &body))
    }

    async fn list_sessions(&self, project: Arc<str>, text: Option<&str>) -> Answer {
        let limit = limit(text)?;
        let prefix = SESSION_PREFIX.to_owned();
        let after = query(text, "after")?.map(|id| format!("{prefix}{id}"));
        let found = self.store().list(List { project, prefix, after, limit }).await?;
        let sessions: Vec<Value> = found
            .iter()
            .filter_map(|(name, head)| {
                let session = self.store().session(name).ok()?;
                let streams: Vec<&str> =
                    session.subscriptions.iter().map(|subscription| &*subscription.source.id).collect();
                Some(json!({
                    "sessionId": name.session_id(),
                    "createdAt": head.created_at.as_millisecond(),
                    "expiresAt": milliseconds(head),
                    "streams": streams,
                }))
            })
            .collect();
        let last = found.last().and_then(|(name, _)| name.session_id());
        let next = last.filter(|_| found.len() == limit);
        Ok(reply(StatusCode::OK, &json!({ "sessions": sessions, "next": next })))
    }

    fn list_sources(&self, project: &str, text: Option<&str>) -> Answer {
        let limit = limit(text)?;
        let after = query(text, "after")?;
        let found = self.fan_outs().sources(project, after.as_deref(), limit);
        let next = found.last().filter(|_| found.len() == limit).map(|source| source.name.id.to_string());
        let sources: Vec<Value> = found.iter().map(describe).collect();
        Ok(reply(StatusCode::OK, &json!({ "sources": sources, "next": next })))
    }
}

fn describe(source: &Source) -> Value {
    json!({
        "streamId": &*source.name.id,
        "subscribers": source.state.subscribers,
        "deliveredOffset": source.state.cursor.to_string(),
        "nextOffset": source.state.tail.to_string(),
        "lagBytes": source.state.lag_bytes(),
        "circuit": match source.circuit {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half-open",
        },
    })
}

async fn pair(request: Request<Upload>) -> Result<Pair, Refusal> {
    let body = request::body(request.into_body(), SESSION_BODY_BYTES_MAX).await?;
    serde_json::from_slice(&body).map_err(|error| {
        Refusal::invalid(format!(r#"the body must be {{"sessionId": …, "streamId": …}}: {error}"#))
    })
}

fn pair_session(project: &str, pair: &Pair) -> Result<(StreamName, String), Refusal> {
    let id = session::session_id(&pair.session_id)?;
    Ok((session_name(project, &id)?, id))
}

fn session_name(project: &str, id: &str) -> Result<StreamName, Refusal> {
    Ok(session::session_stream(project, id)?)
}

fn milliseconds(head: &Head) -> i64 {
    head.ends_at.unwrap_or(Timestamp::MAX).as_millisecond()
}

fn limit(text: Option<&str>) -> Result<usize, Refusal> {
    match query(text, "limit")? {
        None => Ok(LIST_MAX),
        Some(text) => match text.parse() {
            Ok(limit @ 1..=LIST_MAX) => Ok(limit),
            _ => Err(Refusal::invalid(format!("limit must be a number from 1 to {LIST_MAX}"))),
        },
    }
}

fn allowed(route: &Route) -> &'static str {
    match route {
        Route::Subscribe | Route::Publish(_) | Route::Touch(_) => "POST, OPTIONS",
        Route::Unsubscribe => "DELETE, OPTIONS",
        Route::Session(_) => "GET, DELETE, OPTIONS",
        Route::Sessions | Route::Sources => "GET, OPTIONS",
    }
}

fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = with_body(status, Body::from(body.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, headers::NO_STORE);
    response
}
