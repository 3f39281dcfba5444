//! Answers hold their call's shares of the limits until their client has taken them.
//!
//! A connection takes the next frame of an answer as soon as its client has room for a byte, and keeps what
//! the client has no room for. So frames are short: an answer in one frame would be in memory, and its call
//! over, before the client has taken much of it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;

/// Most bytes of a frame: as many as HTTP/2 sends in one (RFC 9113, section 4.2).
const FRAME_BYTES: usize = 16 << 10;

/// The body of an answer.
struct Answer<T> {
    body: Body,
    /// The rest of the body's last frame.
    rest: Bytes,
    _held: T,
}

/// The body of an answer that holds `held` until its client has taken it, but for the last frame.
pub(crate) fn holding<T: Send + Unpin + 'static>(body: Body, held: T) -> Body {
    Body::new(Answer {
        body,
        rest: Bytes::new(),
        _held: held,
    })
}

impl<T: Unpin> http_body::Body for Answer<T> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let answer = self.get_mut();
        while answer.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut answer.body).poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(data) => answer.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = answer.rest.len().min(FRAME_BYTES);
        Poll::Ready(Some(Ok(Frame::data(answer.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}
