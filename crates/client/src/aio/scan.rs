//! Scans as a stream, whose next page is under way while one is yielded.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::task::coop;

use super::Client;
use crate::scanner::{ScanEntry, ScanPosition, ScanRange};
use crate::{ClientError, Item, Operation, Output, ScanPage};

/// What is on its way.
type UnderWay<T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>;

/// A page; none if there was no room to ask for it ahead.
type Fetched = Option<ScanPage>;

/// The entries of a range, in order. What [`crate::Scanner`] says of consistency and of large values holds
/// here too. Nothing is asked for before the first poll.
pub struct ScanStream {
    client: Client,
    position: ScanPosition,
    /// The page at the position.
    fetching: Option<UnderWay<Fetched>>,
    /// The entry that is next, where its value did not fit the page.
    getting: Option<UnderWay<Option<Item>>>,
}

impl std::fmt::Debug for ScanStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanStream").field("position", &self.position).finish_non_exhaustive()
    }
}

impl ScanStream {
    pub(super) fn new(client: Client, range: ScanRange) -> ScanStream {
        ScanStream { client, position: ScanPosition::new(range), fetching: None, getting: None }
    }

    /// The next entry; none at the end. After an error the same stream goes on where it was when it is asked
    /// again.
    pub async fn next(&mut self) -> Option<Result<ScanEntry, ClientError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// What of the range was not yielded yet: scan it to go on, with this client or another; none when the
    /// scan is through.
    #[must_use]
    pub fn resume(&self) -> Option<ScanRange> {
        self.position.resume()
    }

    /// Asks for the page at the position, if none is on its way. None: the scan is through.
    fn fetch(&mut self) -> Option<&mut UnderWay<Fetched>> {
        if self.fetching.is_none() {
            let (client, range) = (self.client.clone(), self.position.next_range()?.clone());
            self.fetching = Some(Box::pin(async move {
                Ok(Some(client.call(&Operation::Scan(range.request())).await?.into_page()))
            }));
        }
        self.fetching.as_mut()
    }

    /// Asks for the value of the next entry, if that is wanted and not on its way.
    fn get(&mut self) -> Option<&mut UnderWay<Option<Item>>> {
        if self.getting.is_none() {
            let (client, key) = (self.client.clone(), self.position.large_key()?.to_vec());
            self.getting = Some(Box::pin(async move { client.get(&key).await }));
        }
        self.getting.as_mut()
    }

    /// The page behind the one that has come sets out: it is on its way while that one's entries are yielded.
    /// It does not wait for room:
    ///
    /// 1. the client's queue is full, and the page is the first that waits for room;
    /// 2. the stream's task has its entry, and asks for something else, which waits behind the page;
    /// 3. an operation ends and wakes the page, which nobody polls before what it has woken the task for: the
    ///    other one sleeps for ever.
    fn fetch_ahead(&mut self, context: &mut Context<'_>) {
        let Some(range) = self.position.range_ahead() else { return };
        let (client, range) = (self.client.clone(), range.clone());
        let mut ahead: UnderWay<Fetched> = Box::pin(async move {
            let page = client.call_if_room(&Operation::Scan(range.request())).await?;
            Ok(page.map(Output::into_page))
        });
        self.fetching = match ahead.as_mut().poll(context) {
            Poll::Ready(Ok(None)) => None,
            Poll::Ready(fetched) => Some(Box::pin(std::future::ready(fetched))),
            Poll::Pending => Some(ahead),
        };
    }

    /// Goes one step on where no entry of the page is here: with the entry that was brought, if there is one.
    /// None: the scan is through.
    fn poll_step(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Option<ScanEntry>, ClientError>>> {
        if let Some(getting) = self.get() {
            let got = std::task::ready!(getting.as_mut().poll(context));
            self.getting = None;
            return Poll::Ready(Some(got.map(|item| self.position.take_large(item))));
        }
        let Some(fetching) = self.fetch() else { return Poll::Ready(None) };
        let fetched = std::task::ready!(fetching.as_mut().poll(context));
        self.fetching = None;
        let came = fetched.map(|page| {
            if let Some(page) = page {
                self.position.on_page(&page);
                self.fetch_ahead(context);
            }
            None
        });
        Poll::Ready(Some(came))
    }

    fn poll_entry(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ScanEntry, ClientError>>> {
        loop {
            if let Some(entry) = self.position.take() {
                return Poll::Ready(Some(Ok(entry)));
            }
            match std::task::ready!(self.poll_step(context)) {
                None => return Poll::Ready(None),
                Some(Ok(Some(entry))) => return Poll::Ready(Some(Ok(entry))),
                Some(Ok(None)) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl Stream for ScanStream {
    type Item = Result<ScanEntry, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The entries of a page are here at once: other tasks are to run between them, too.
        let budget = std::task::ready!(coop::poll_proceed(context));
        let entry = std::task::ready!(self.poll_entry(context));
        budget.made_progress();
        Poll::Ready(entry)
    }
}
