//! Calls of many handlers made in one: while a call is in flight, the next ones gather.
//!
//! A call on an idle worker is made at once. On a busy one it costs the database a fraction of what it would cost alone,
//! because transactions, plans and round trips are shared.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::held::lock;
use crate::limits;

/// What a call of many answers for each: none means to ask for it alone.
type Call<Q, A> = Box<dyn Fn(Vec<Q>) -> BoxFuture<'static, Vec<Option<A>>> + Send + Sync>;

/// One kind of call.
pub(crate) struct Batch<Q, A> {
    call: Call<Q, A>,
    /// The most in one call.
    max: usize,
    state: Mutex<State<Q, A>>,
}

struct State<Q, A> {
    waiting: VecDeque<(Q, oneshot::Sender<A>)>,
    in_flight: usize,
}

impl<Q: Clone + Send + 'static, A: Send + 'static> Batch<Q, A> {
    /// A kind of call. One about a single question must answer it.
    pub(crate) fn new<F>(max: usize, call: impl Fn(Vec<Q>) -> F + Send + Sync + 'static) -> Arc<Batch<Q, A>>
    where
        F: Future<Output = Vec<Option<A>>> + Send + 'static,
    {
        let state = State { waiting: VecDeque::new(), in_flight: 0 };
        Arc::new(Batch {
            call: Box::new(move |questions| Box::pin(call(questions))),
            max,
            state: Mutex::new(state),
        })
    }

    /// Asks together with others.
    pub(crate) async fn ask(self: &Arc<Self>, question: Q) -> A {
        let (send, receive) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            state.waiting.push_back((question, send));
            if state.in_flight < limits::BATCHES_AT_ONCE {
                state.in_flight += 1;
                tokio::spawn(self.clone().run());
            }
        }
        receive.await.expect("every question is answered")
    }

    /// Asks what waits until nothing does.
    async fn run(self: Arc<Self>) {
        loop {
            let (questions, senders): (Vec<Q>, Vec<_>) = {
                let mut state = lock(&self.state);
                if state.waiting.is_empty() {
                    state.in_flight -= 1;
                    return;
                }
                let count = state.waiting.len().min(self.max);
                state.waiting.drain(..count).unzip()
            };
            let answers = (self.call)(questions.clone()).await;
            for ((answer, question), sender) in answers.into_iter().zip(questions).zip(senders) {
                match answer {
                    // An error means that nobody wants to know any more.
                    Some(answer) => drop(sender.send(answer)),
                    None => drop(tokio::spawn(self.clone().alone(question, sender))),
                }
            }
        }
    }

    /// Asks one that would have held up the others.
    async fn alone(self: Arc<Self>, question: Q, sender: oneshot::Sender<A>) {
        let answer = (self.call)(vec![question]).await.pop().flatten();
        drop(sender.send(answer.expect("a single question is answered")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn questions_gather_while_a_call_is_in_flight() {
        let sizes = Arc::new(Mutex::new(vec![]));
        let seen = sizes.clone();
        let batch = Batch::new(8, move |questions: Vec<u32>| {
            lock(&seen).push(questions.len());
            async move {
                tokio::task::yield_now().await;
                questions.into_iter().map(Some).collect()
            }
        });
        let asked = (0..40).map(|number| {
            let batch = batch.clone();
            tokio::spawn(async move { batch.ask(number).await })
        });
        let answers = futures_util::future::join_all(asked.collect::<Vec<_>>()).await;
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(usize::try_from(answer.expect("no panic")), Ok(number));
        }
        let sizes = lock(&sizes);
        assert_eq!(sizes.iter().sum::<usize>(), 40);
        assert!(sizes.iter().all(|size| *size <= 8) && sizes.len() < 20, "{sizes:?}");
    }

    #[tokio::test]
    async fn what_would_hold_up_others_is_asked_alone() {
        let batch = Batch::new(8, |questions: Vec<u32>| async move {
            let alone = questions.len() == 1;
            questions.into_iter().map(|number| (alone || number != 3).then_some(number)).collect()
        });
        let asked = (0..8).map(|number| {
            let batch = batch.clone();
            async move { batch.ask(number).await }
        });
        assert_eq!(futures_util::future::join_all(asked).await, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
