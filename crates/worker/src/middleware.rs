//! Middleware: functions around every handler of a worker.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::handler::{Context, Handler, Output, Result, Running};

/// A function around handlers whose type is forgotten.
pub(crate) type Middleware = Arc<dyn Fn(Context, Next) -> Running + Send + Sync>;

/// What a middleware is around: the next middleware, or the handler.
pub struct Next {
    pub(crate) context: Context,
    pub(crate) payload: Box<RawValue>,
    pub(crate) handler: Handler,
    /// The middleware inside of this one.
    pub(crate) inner: std::vec::IntoIter<Middleware>,
}

impl Next {
    /// The payload, as JSON.
    pub fn payload(&self) -> &RawValue {
        &self.payload
    }

    /// Runs it.
    pub async fn run(mut self) -> Result<Output> {
        let context = self.context.clone();
        match self.inner.next() {
            Some(middleware) => middleware(context, self).await,
            None => (self.handler)(self.payload, context).await,
        }
    }
}
