//! Messages that were left for streams in SQL transactions, taken in exactly once.
//!
//! The commit that appends them also notes their ids and the number of the batch, as a small value of the store. A
//! batch names the number of the one before. So of two batches that were read at the same time, one is refused.

use super::super::queue::MetaValue;
use super::{Decided, Plan, answer_of};
use crate::intake::{NAMESPACE, NOTED};
use crate::{Error, FanOutMode, IntakeBatch, Noted};

impl Plan<'_> {
    /// Each message is decided on its own, all of them in one commit. The number of the batch moves if anything was
    /// appended.
    pub(super) fn take_in(&mut self, batch: &IntakeBatch) -> Decided<Vec<Result<FanOutMode, Error>>> {
        batch.messages.iter().try_for_each(|message| self.check_free(&message.name))?;
        let noted = self.index.metas.get(&(NAMESPACE.to_owned(), NOTED.to_owned()));
        let noted = noted.map_or_else(Noted::default, |bytes| Noted::decode(bytes));
        if self.has_taken_in || noted.batch != batch.before {
            return Err(
                Error::Busy("another batch of messages was taken in first; read the intake again").into()
            );
        }
        let mut answers = Vec::with_capacity(batch.messages.len());
        let mut ids = Vec::with_capacity(batch.messages.len());
        for message in &batch.messages {
            let published = answer_of(self.append(&message.name, &message.append, batch.fan_out));
            let published = published.expect("appends lock nothing, and all names were free");
            if published.is_ok() {
                ids.push(message.id);
            }
            answers.push(published.map(|published| published.mode));
        }
        if !ids.is_empty() {
            self.has_taken_in = true;
            let value = Some(Noted { batch: batch.before + 1, ids }.encode());
            let (namespace, key) = (NAMESPACE.to_owned(), NOTED.to_owned());
            self.set_meta(&MetaValue { namespace, key, value })?;
        }
        Ok(answers)
    }
}
