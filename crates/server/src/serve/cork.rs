//! A socket whose writes are held back until its connection has no more to write.
//!
//! The HTTP/2 library writes each larger DATA frame separately, so twelve responses that are
//! ready together would be twelve system calls and twelve wake-ups of the client. Here a
//! connection's writes go to memory while it is polled, and to the socket once per poll. The
//! buffer is bounded: a slow reader blocks the connection, as without a cork.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::handles::connections::Connection;

/// The most bytes held back; beyond that the socket is written first. Room for sixteen frames
/// of a long response, each of 16 KiB and its head.
const HELD_BYTES_MAX: usize = 16 * (16 * 1024 + 9);

/// A write this large justifies its own system call and is not copied.
const LARGE_BYTES: usize = 256 * 1024;

thread_local! {
    /// An empty buffer that the connections of this thread share. An idle connection has none
    /// of its own, since there may be ten thousand of them; a connection keeps the buffer only
    /// while a slow reader blocks it.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

struct Corked<S> {
    socket: S,
    held: Vec<u8>,
    /// The bytes of `held` that were written to the socket.
    released: usize,
    /// The error of writing held bytes. The connection's next read or write returns it.
    broken: Option<io::ErrorKind>,
    connection: Arc<Connection>,
    received_bytes: IntCounter,
    sent_bytes: IntCounter,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Corked<S> {
    fn check(&self) -> io::Result<()> {
        self.broken.map_or(Ok(()), |kind| Err(kind.into()))
    }

    /// Returns the buffer to the thread.
    fn give_back(&mut self) {
        self.released = 0;
        if self.held.capacity() > 0 {
            self.held.clear();
            SPARE.set(std::mem::take(&mut self.held));
        }
    }

    /// Writes all held bytes.
    fn poll_release(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest @ [_, ..]) = self.held.get(self.released..) {
            let written = ready!(Pin::new(&mut self.socket).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.released += written;
            self.sent_bytes.inc_by(written as u64);
        }
        // TLS keeps what the socket does not take; TCP has nothing to flush.
        ready!(Pin::new(&mut self.socket).poll_flush(context))?;
        self.give_back();
        Poll::Ready(Ok(()))
    }
}

/// The socket as the connection uses it: reads pass through, writes are held back.
pub struct CorkedSocket<S>(Rc<RefCell<Corked<S>>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for CorkedSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let corked = &mut *self.0.borrow_mut();
        corked.check()?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut corked.socket).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            corked.connection.received(bytes);
            corked.received_bytes.inc_by(bytes as u64);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CorkedSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let corked = &mut *self.0.borrow_mut();
        corked.check()?;
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if bytes >= LARGE_BYTES || corked.held.len() + bytes > HELD_BYTES_MAX {
            ready!(corked.poll_release(context))?;
        }
        if bytes >= LARGE_BYTES {
            let written = Pin::new(&mut corked.socket).poll_write_vectored(context, slices);
            if let Poll::Ready(Ok(bytes)) = written {
                corked.sent_bytes.inc_by(bytes as u64);
            }
            return written;
        }
        if corked.held.is_empty() {
            corked.held = SPARE.take();
            corked.held.reserve(HELD_BYTES_MAX);
        }
        for slice in slices {
            corked.held.extend_from_slice(slice);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Returns at once: [`Uncorking`] writes after every poll.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let corked = &mut *self.0.borrow_mut();
        ready!(corked.poll_release(context))?;
        Pin::new(&mut corked.socket).poll_shutdown(context)
    }
}

/// Writes the held bytes of a connection's socket.
pub struct Cork<S>(Rc<RefCell<Corked<S>>>);

/// Corks a socket, and counts the bytes read and written.
pub fn cork<S>(
    socket: S,
    connection: Arc<Connection>,
    received_bytes: IntCounter,
    sent_bytes: IntCounter,
) -> (CorkedSocket<S>, Cork<S>) {
    let corked = Rc::new(RefCell::new(Corked {
        socket,
        held: Vec::new(),
        released: 0,
        broken: None,
        connection,
        received_bytes,
        sent_bytes,
    }));
    (CorkedSocket(Rc::clone(&corked)), Cork(corked))
}

impl<S> Cork<S> {
    /// Runs a connection that uses the socket, and writes the held bytes after each poll of it.
    /// Ends when both have ended.
    pub fn around<C: Future>(self, connection: C) -> Uncorking<C, S> {
        Uncorking {
            cork: self,
            connection: Box::pin(connection),
            ended: None,
        }
    }
}

/// A connection and its cork, see [`Cork::around`].
pub struct Uncorking<C: Future, S> {
    cork: Cork<S>,
    connection: Pin<Box<C>>,
    ended: Option<C::Output>,
}

impl<C: Future, S> Uncorking<C, S> {
    /// Returns the connection, for example to shut it down.
    pub fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future<Output: Unpin>, S: AsyncRead + AsyncWrite + Unpin> Future for Uncorking<C, S> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        if this.ended.is_none()
            && let Poll::Ready(ended) = this.connection.as_mut().poll(context)
        {
            this.ended = Some(ended);
        }
        let corked = &mut *this.cork.0.borrow_mut();
        let released = corked.poll_release(context);
        if let Poll::Ready(Err(error)) = &released
            && corked.broken.is_none()
        {
            corked.broken = Some(error.kind());
            corked.give_back();
            context.waker().wake_by_ref();
        }
        match (this.ended.take(), released) {
            (Some(ended), Poll::Ready(_)) => Poll::Ready(ended),
            (ended, _) => {
                this.ended = ended;
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        (client.unwrap(), server.unwrap().0)
    }

    fn corked(socket: TcpStream) -> (CorkedSocket<TcpStream>, Cork<TcpStream>) {
        let counter = |name| IntCounter::new(name, "bytes").unwrap();
        let connection = Connection::new(portunus_mvcc::watch::ConnectionId(1));
        cork(
            socket,
            Arc::new(connection),
            counter("received"),
            counter("sent"),
        )
    }

    #[tokio::test]
    async fn writes_are_sent_at_the_end_of_the_poll() {
        let (mut client, server) = connected().await;
        let (mut socket, cork) = corked(server);
        let corked = Rc::clone(&socket.0);
        let connection = async move {
            for _ in 0..3 {
                socket.write_all(b"answer ").await.unwrap();
                socket.flush().await.unwrap();
            }
            let held_bytes = corked.borrow().held.len();
            tokio::task::yield_now().await;
            (held_bytes, corked.borrow().held.len())
        };
        assert_eq!(cork.around(connection).await, (21, 0));
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "answer answer answer ");
    }

    #[tokio::test]
    async fn writes_of_any_size_arrive_in_order() {
        let (mut client, server) = connected().await;
        let (mut socket, cork) = corked(server);
        let pieces: Vec<Vec<u8>> = [1, 300, LARGE_BYTES, 7, HELD_BYTES_MAX * 20, 500]
            .iter()
            .zip(b'a'..)
            .map(|(bytes, letter)| vec![letter; *bytes])
            .collect();
        let expected = pieces.concat();
        let connection = async move {
            for piece in pieces {
                socket.write_all(&piece).await.unwrap();
            }
            socket.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(cork.around(connection), client.read_to_end(&mut received));
        read.unwrap();
        assert!(received == expected, "{} bytes", received.len());
    }

    #[tokio::test]
    async fn blocked_reader_blocks_the_writer() {
        let (client, server) = connected().await;
        let (mut socket, cork) = corked(server);
        let corked = Rc::clone(&socket.0);
        let connection = async move {
            loop {
                if let Err(error) = socket.write_all(&[0; 1000]).await {
                    return error;
                }
            }
        };
        let mut served = cork.around(connection);
        let patience = std::time::Duration::from_millis(200);
        assert!(tokio::time::timeout(patience, &mut served).await.is_err());
        assert!(corked.borrow().held.len() <= HELD_BYTES_MAX);
        drop(client);
        // The writer gets an error once the reader has disconnected.
        served.await;
    }
}
