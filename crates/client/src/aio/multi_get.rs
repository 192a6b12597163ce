//! Gets of many keys, whose groups are under way together.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Client;
use crate::multi_get::{FoundItems, GROUPS_AHEAD, groups};
use crate::{ClientError, Item, Operation, Output};

/// The call of one group. All of them are polled: each submits when it is first polled and finds room.
enum GroupCall<'a> {
    UnderWay(Pin<Box<dyn Future<Output = Result<Output, ClientError>> + Send + 'a>>),
    Ended(Result<Output, ClientError>),
}

impl GroupCall<'_> {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let GroupCall::UnderWay(call) = self
            && let Poll::Ready(outcome) = call.as_mut().poll(context)
        {
            *self = GroupCall::Ended(outcome);
        }
    }
}

/// As [`Client::multi_get`]. Dropped, or ended by an error, it gives up what is under way.
pub(super) async fn multi_get(client: &Client, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, ClientError> {
    let mut found = FoundItems::default();
    let mut groups = groups(keys);
    let mut calls: VecDeque<GroupCall<'_>> = VecDeque::new();
    loop {
        let room = GROUPS_AHEAD - calls.len();
        calls.extend(groups.by_ref().take(room).map(|group| {
            let call = async move { client.call(&Operation::MultiGet { keys: group }).await };
            GroupCall::UnderWay(Box::pin(call))
        }));
        if calls.is_empty() {
            break;
        }
        let outcome = poll_fn(|context| {
            calls.iter_mut().for_each(|call| call.poll(context));
            match calls.pop_front_if(|first| matches!(first, GroupCall::Ended(_))) {
                Some(GroupCall::Ended(outcome)) => Poll::Ready(outcome),
                _ => Poll::Pending,
            }
        });
        found.push_group(&outcome.await?.into_values());
    }
    let (mut items, large) = found.into_parts();
    for at in large {
        items[at] = client.get(keys[at]).await?;
    }
    Ok(items)
}
