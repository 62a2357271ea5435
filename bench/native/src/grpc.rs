//! gRPC over HTTP/2 as a client: connections, unary calls, the messages of a stream.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::options::Options;
use crate::{tls, Fault};

const WINDOW: u32 = 1 << 30; // never the limit: what is measured is the server
const HEAD: usize = 5;

/// Whom to call, and how: with TLS if there is a CA, with a token if there is one.
#[derive(Clone)]
pub struct Target {
    endpoint: Rc<str>,
    tls: Option<TlsConnector>,
    token: Option<HeaderValue>,
}

impl Target {
    pub fn of(options: &Options) -> Result<Self, Fault> {
        let token = options.optional("token").map(HeaderValue::from_str).transpose()?;
        Ok(Self { endpoint: options.endpoint().into(), tls: tls::connector(options)?, token })
    }

    /// The same way, to another endpoint.
    pub fn at(&self, endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), ..self.clone() }
    }
}

/// One connection; `fault` is why it ended.
#[derive(Clone)]
pub struct Connection {
    send: SendRequest<Bytes>,
    target: Target,
    fault: Rc<RefCell<Option<String>>>,
}

impl Connection {
    pub async fn open(target: &Target) -> Result<Self, Fault> {
        let socket = TcpStream::connect(&*target.endpoint).await?;
        socket.set_nodelay(true)?;
        match &target.tls {
            None => Self::over(socket, target).await,
            Some(tls) => {
                let name = tls::name_of(&target.endpoint)?;
                Self::over(tls.connect(name, socket).await?, target).await
            }
        }
    }

    async fn over<T>(socket: T, target: &Target) -> Result<Self, Fault>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (send, connection) = Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(socket)
            .await?;
        let fault = Rc::new(RefCell::new(None));
        let told = fault.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = connection.await {
                *told.borrow_mut() = Some(error.to_string());
            }
        });
        Ok(Self { send, target: target.clone(), fault })
    }

    pub async fn open_many(target: &Target, count: usize) -> Result<Vec<Self>, Fault> {
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(Self::open(target).await?);
        }
        Ok(all)
    }

    /// Return the whole address of a path.
    pub fn uri(&self, path: &str) -> String {
        let scheme = if self.target.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.target.endpoint)
    }

    /// Send a plain request; return the body of its answer, which must be a good one.
    pub async fn send(&self, request: Request<()>, body: Bytes) -> Result<RecvStream, Fault> {
        let mut send = self.send.clone().ready().await?;
        let (response, mut stream) = send.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body, true)?;
        }
        let (parts, mut body) = response.await?.into_parts();
        if parts.status.is_success() {
            return Ok(body);
        }
        let told = body.data().await.transpose()?.unwrap_or_default();
        Err(format!("{}: {}", parts.status, String::from_utf8_lossy(&told)).into())
    }

    /// Begin a call; the stream stays open for more messages.
    pub async fn begin(&self, path: &str) -> Result<(ResponseFuture, SendStream<Bytes>), Fault> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.uri(path))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        if let Some(token) = &self.target.token {
            request.headers_mut().insert("token", token.clone());
        }
        match self.send.clone().ready().await {
            Ok(mut send) => Ok(send.send_request(request, false)?),
            Err(error) => {
                let fault = self.fault.borrow();
                Err(fault.as_deref().map_or_else(|| error.to_string(), str::to_owned).into())
            }
        }
    }

    /// Make a unary call; return the response message without its frame.
    pub async fn call(&self, path: &str, frame: Bytes) -> Result<Bytes, Fault> {
        let (response, mut send) = self.begin(path).await?;
        send.send_data(frame, true)?;
        let (parts, mut body) = response.await?.into_parts();
        refuse(&parts.headers)?;
        let (mut whole, mut joined) = (Bytes::new(), BytesMut::new()); // most come in one piece
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            if whole.is_empty() && joined.is_empty() {
                whole = chunk;
                continue;
            }
            joined.extend_from_slice(&std::mem::take(&mut whole));
            joined.extend_from_slice(&chunk);
        }
        if !joined.is_empty() {
            whole = joined.freeze();
        }
        if let Some(trailers) = body.trailers().await? {
            refuse(&trailers)?;
        }
        if whole.len() < HEAD {
            return Err(format!("an answer of {} bytes to {path}", whole.len()).into());
        }
        Ok(whole.slice(HEAD..))
    }
}

fn refuse(headers: &HeaderMap) -> Result<(), Fault> {
    match headers.get("grpc-status") {
        Some(status) if status != "0" => {
            let text = headers.get("grpc-message").map(|text| text.to_str().unwrap_or("?"));
            Err(format!("grpc-status {status:?}: {}", text.unwrap_or("")).into())
        }
        _ => Ok(()),
    }
}

/// The messages a server sends on one stream.
pub struct Messages {
    body: RecvStream,
    torn: BytesMut,
}

impl Messages {
    pub async fn of(response: ResponseFuture) -> Result<Self, Fault> {
        let (parts, body) = response.await?.into_parts();
        refuse(&parts.headers)?;
        Ok(Self { body, torn: BytesMut::new() })
    }

    /// Wait for bytes and hand over every whole message; return whether the stream goes on.
    pub async fn take(
        &mut self,
        mut one: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        let Some(chunk) = self.body.data().await else {
            if let Some(trailers) = self.body.trailers().await? {
                refuse(&trailers)?;
            }
            return Ok(false);
        };
        let chunk = chunk?;
        self.body.flow_control().release_capacity(chunk.len())?;
        if self.torn.is_empty() {
            let mut rest = &chunk[..];
            while let Some((message, after)) = split(rest) {
                one(message)?;
                rest = after;
            }
            self.torn.extend_from_slice(rest);
            return Ok(true);
        }
        self.torn.extend_from_slice(&chunk);
        let whole = self.torn.split();
        let mut rest = &whole[..];
        while let Some((message, after)) = split(rest) {
            one(message)?;
            rest = after;
        }
        self.torn.extend_from_slice(rest);
        Ok(true)
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut head = bytes.get(1..HEAD)?;
    let length = head.get_u32() as usize;
    let message = bytes.get(HEAD..HEAD + length)?;
    Some((message, &bytes[HEAD + length..]))
}
