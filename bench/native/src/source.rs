//! The trivial server: what this client can take at most is what it takes from here.
//!
//! It answers every put at once and tells every watcher of it; it stores nothing. Events leave as
//! frames made once, so its own work is that of HTTP/2 alone.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use h2::server::{handshake, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use crate::proto::{bytes_of, Message};
use crate::Fault;

/// One stream with so many watchers, who are told of every put whatever its key.
struct Watching {
    watchers: u64,
    send: SendStream<Bytes>,
}

type All = Rc<RefCell<Vec<Watching>>>;

pub async fn play() -> Result<String, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let all = All::default();
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let all = all.clone();
        spawn_local(async move {
            let Ok(mut connection) = handshake(socket).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                let all = all.clone();
                // A stream fails when its client leaves, which is how every load ends here.
                spawn_local(async move { serve(request, respond, all).await.is_ok() });
            }
        });
    }
}

async fn serve(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    all: All,
) -> Result<(), Fault> {
    let is_watch = request.uri().path().ends_with("/Watch");
    let head = Response::builder().header("content-type", "application/grpc").body(())?;
    let mut send = respond.send_response(head, false)?;
    let mut frames = Frames { body: request.into_body(), bytes: BytesMut::new() };
    if is_watch {
        let place = all.borrow().len();
        all.borrow_mut().push(Watching { watchers: 0, send });
        while let Ok(Some(_)) = frames.next().await {
            let watching = &mut all.borrow_mut()[place];
            let created = Message::default().number(2, watching.watchers).number(3, 1);
            watching.watchers += 1;
            watching.send.send_data(created.framed(), false)?;
        }
        all.borrow_mut()[place].watchers = 0; // its client has gone
        return Ok(());
    }
    while let Some(put) = frames.next().await? {
        tell(&all, &put)?;
    }
    send.send_data(Message::default().framed(), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    Ok(send.send_trailers(trailers)?)
}

fn tell(all: &All, put: &[u8]) -> Result<(), Fault> {
    let kv = Message::default().bytes(1, bytes_of(put, 1)?).bytes(5, bytes_of(put, 2)?);
    let event = Message::default().message(11, Message::default().message(2, kv)).framed();
    for watching in all.borrow_mut().iter_mut().filter(|watching| watching.watchers > 0) {
        watching.send.send_data(event.repeat(watching.watchers as usize).into(), false)?;
    }
    Ok(())
}

struct Frames {
    body: RecvStream,
    bytes: BytesMut,
}

impl Frames {
    /// Wait for a message; None: the client sends no more.
    async fn next(&mut self) -> Result<Option<BytesMut>, Fault> {
        loop {
            if let Some(head) = self.bytes.get(1..5) {
                let length = u32::from_be_bytes(head.try_into()?) as usize;
                if self.bytes.len() >= 5 + length {
                    return Ok(Some(self.bytes.split_to(5 + length).split_off(5)));
                }
            }
            let Some(chunk) = self.body.data().await else { return Ok(None) };
            let chunk = chunk?;
            self.body.flow_control().release_capacity(chunk.len())?;
            self.bytes.extend_from_slice(&chunk);
        }
    }
}
