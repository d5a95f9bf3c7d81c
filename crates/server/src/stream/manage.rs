//! `HEAD` and `DELETE`.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use towpath_model::stream::etag::PageTag;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::{Answer, Streams, empty, headers, retention};
use crate::project::Pass;

impl Streams {
    /// The metadata of a stream. Does not renew a sliding expiry.
    pub(super) fn head(&self, name: &StreamName, pass: &Pass) -> Answer {
        let head = self.store().head(name)?;
        let mut response = empty(StatusCode::OK);
        let out = response.headers_mut();
        out.insert(CONTENT_TYPE, headers::text(head.content_type.as_str()));
        out.insert(CACHE_CONTROL, headers::NO_STORE);
        out.insert(headers::NEXT_OFFSET, headers::offset(head.tail));
        let tag = PageTag { life: head.id.0, from: Offset::ZERO, to: head.tail, is_the_end: head.closed };
        out.insert(ETAG, headers::text(&tag.to_string()));
        if let Some(key) = pass.reader_key(name) {
            out.insert(headers::READER_KEY, headers::text(&key));
        }
        if head.closed {
            out.insert(headers::CLOSED, headers::TRUE);
        }
        if head.start > Offset::ZERO {
            out.insert(headers::FIRST_OFFSET, headers::offset(head.start));
        }
        retention::describe(out, head.retention);
        match head.expiry {
            Expiry::Never => {}
            Expiry::Sliding { seconds } => {
                out.insert(headers::TTL, headers::number(seconds));
            }
            Expiry::At(at) => {
                out.insert(headers::EXPIRES_AT, headers::text(&at.to_string()));
            }
        }
        Ok(response)
    }

    pub(super) async fn delete(&self, name: StreamName) -> Answer {
        self.fan_outs().finish(&name).await?;
        self.store().delete(name).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }
}
