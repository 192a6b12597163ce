//! Scans as a stream, whose next page is under way while one is yielded.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::Client;
use crate::scanner::{PageEntry, ScanEntry, ScanPosition, ScanRange};
use crate::{ClientError, Operation, ScanPage};

/// A page on its way, with its entries: large values are brought by gets of their own.
type Fetching = Pin<Box<dyn Future<Output = Fetched> + Send>>;

type Fetched = Result<(ScanPage, VecDeque<ScanEntry>), ClientError>;

/// The entries of a range, in order. What [`crate::Scanner`] says of consistency holds here too. Nothing is
/// asked for before the first poll.
pub struct ScanStream {
    client: Client,
    position: ScanPosition,
    fetching: Option<Fetching>,
}

impl std::fmt::Debug for ScanStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanStream").field("position", &self.position).finish_non_exhaustive()
    }
}

impl ScanStream {
    pub(super) fn new(client: Client, range: ScanRange) -> ScanStream {
        ScanStream { client, position: ScanPosition::new(range), fetching: None }
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
    fn fetch(&mut self) -> Option<&mut Fetching> {
        if self.fetching.is_none() {
            let range = self.position.next_range()?.clone();
            self.fetching = Some(Box::pin(fetch(self.client.clone(), range)));
        }
        self.fetching.as_mut()
    }
}

impl Stream for ScanStream {
    type Item = Result<ScanEntry, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        loop {
            if let Some(entry) = stream.position.take() {
                return Poll::Ready(Some(Ok(entry)));
            }
            let Some(fetching) = stream.fetch() else { return Poll::Ready(None) };
            let fetched = std::task::ready!(fetching.as_mut().poll(context));
            stream.fetching = None;
            match fetched {
                Ok((page, entries)) => stream.position.on_page(&page, entries),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            // The next one sets out now: it is on its way while these entries are yielded.
            if let Some(fetching) = stream.fetch()
                && let Poll::Ready(fetched) = fetching.as_mut().poll(context)
            {
                stream.fetching = Some(Box::pin(std::future::ready(fetched)));
            }
        }
    }
}

async fn fetch(client: Client, range: ScanRange) -> Fetched {
    let page = client.call(&Operation::Scan(range.request())).await?.into_page();
    let mut entries = VecDeque::with_capacity(page.len());
    for entry in page.iter() {
        match PageEntry::of(&entry) {
            PageEntry::Whole(entry) => entries.push_back(entry),
            PageEntry::Large { key } => {
                let item = client.get(&key).await?;
                entries.extend(item.map(|item| ScanEntry::whole(key, item)));
            }
        }
    }
    Ok((page, entries))
}
