//! Plain requests over HTTP/2: their answers whole, or their bodies as they come.

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::{HeaderValue, Method, Request};

use crate::grpc::Connection;
use crate::options::Options;
use crate::Fault;

/// What is sent over and over: `{n}` is a number below `objects`, `{i}` one that is never used again.
pub struct Template {
    method: Method,
    path: String,
    body: String,
    content_type: HeaderValue,
    bearer: Option<HeaderValue>,
    objects: u64,
    first: u64,
}

impl Template {
    /// Read --method, --path, --body (a file), --content-type, --bearer, --objects and --first.
    pub fn of(options: &Options) -> Result<Self, Fault> {
        let bearer = options.optional("bearer").map(|token| format!("Bearer {token}"));
        let body = options.optional("body").map_or(Ok(String::new()), std::fs::read_to_string)?;
        let content_type = options.optional("content-type").unwrap_or("application/json");
        Ok(Self {
            method: options.text("method")?.parse()?,
            path: options.text("path")?.to_owned(),
            body,
            content_type: HeaderValue::from_str(content_type)?,
            bearer: bearer.as_deref().map(HeaderValue::from_str).transpose()?,
            objects: options.count_or("objects", 1)?.max(1) as u64,
            first: options.count_or("first", 0)? as u64,
        })
    }

    /// Send the request of a number; RuntimeError if it is not answered with 2xx.
    pub async fn send(&self, connection: &Connection, number: u64) -> Result<Bytes, Fault> {
        let (method, path) = (self.method.clone(), self.filled(&self.path, number));
        let body = Bytes::from(self.filled(&self.body, number));
        whole(connection.send(self.request(method, &path, connection)?, body).await?).await
    }

    /// Open a stream of another path with the same credentials.
    pub async fn open(&self, connection: &Connection, path: &str) -> Result<RecvStream, Fault> {
        connection.send(self.request(Method::GET, path, connection)?, Bytes::new()).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        connection: &Connection,
    ) -> Result<Request<()>, Fault> {
        let mut request = Request::builder()
            .method(method)
            .uri(connection.uri(path))
            .header("content-type", self.content_type.clone())
            .header("accept", "application/json")
            .body(())?;
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert("authorization", bearer.clone());
        }
        Ok(request)
    }

    fn filled(&self, text: &str, number: u64) -> String {
        let (near, own) = (number % self.objects, self.first + number);
        text.replace("{n}", &format!("{near:06}")).replace("{i}", &format!("{own:08}"))
    }
}

async fn whole(mut body: RecvStream) -> Result<Bytes, Fault> {
    let mut joined = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        joined.extend_from_slice(&chunk);
    }
    Ok(joined.freeze())
}
