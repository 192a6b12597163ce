//! A whole body of HTTP in one buffer. Pieces are not kept: each keeps the buffer that it was read into, and
//! a sender decides how many there are.

use std::error::Error;
use std::pin::pin;

use axum::body::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;

/// Reads a body to its end, of `bytes_max` at most.
///
/// # Errors
/// `http_body_util::LengthLimitError` if it is longer; else what broke it off.
pub(crate) async fn limited_body<B>(body: B, bytes_max: usize) -> Result<Bytes, Box<dyn Error + Send + Sync>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = pin!(Limited::new(body, bytes_max));
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            whole.extend_from_slice(&piece);
        }
    }
    Ok(whole.into())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::{StreamExt, stream};
    use http_body_util::{LengthLimitError, StreamBody};
    use hyper::body::Frame;

    use super::*;

    /// A buffer, counted while anything keeps it.
    struct Counted(Arc<AtomicUsize>);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn limited_body_keeps_no_piece() {
        let (kept, kept_max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counter, maximum) = (Arc::clone(&kept), Arc::clone(&kept_max));
        let pieces = stream::iter(0..1000).map(move |_| {
            maximum.fetch_max(counter.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(Bytes::from_owner(Counted(Arc::clone(&counter)))))
        });
        assert_eq!(limited_body(StreamBody::new(pieces), 1000).await.unwrap(), vec![b'x'; 1000]);
        assert_eq!((kept.load(Ordering::Relaxed), kept_max.load(Ordering::Relaxed)), (0, 1));
    }

    #[tokio::test]
    async fn limited_body_refuses_more_than_asked_for() {
        let pieces = stream::iter(0..11).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))));
        let error = limited_body(StreamBody::new(pieces), 10).await.unwrap_err();
        assert!(error.is::<LengthLimitError>(), "{error}");
    }
}
