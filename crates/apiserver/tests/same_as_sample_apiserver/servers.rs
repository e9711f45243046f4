//! The two servers, each with a store of its own, and requests to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use portunus_apiserver::testing::{self, TestServer};
use portunus_client::kubernetes::Kubernetes;
use portunus_client::{Client, Options};
use portunus_testkit::certificates::Authority;
use portunus_testkit::process::Process;
use portunus_testkit::standalone::{Server, data_dir};
use portunus_testkit::wait::WAIT_MAX;
use portunus_tls::{ALPN_HTTP, ClientOptions, ClientTls};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wardle;

/// The line of the log with the address of the sample API server.
const SERVING: &str = "Serving securely on ";
/// The time limit for an event that must come.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Headers that clients depend on.
const COMPARED_HEADERS: [&str; 7] = [
    "allow",
    "cache-control",
    "content-type",
    "retry-after",
    "vary",
    "warning",
    "x-content-type-options",
];

/// A request to one of the servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    pub method: &'static str,
    pub target: String,
    pub content_type: Option<&'static str>,
    pub accept: Option<&'static str>,
    pub body: String,
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub headers: BTreeMap<String, String>,
    /// The document, or a text that is no JSON.
    pub body: Value,
}

/// A connection to a server.
pub struct Peer {
    address: SocketAddr,
    tls: Option<ClientTls>,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Peer {
    fn new(address: SocketAddr, tls: Option<ClientTls>) -> Peer {
        Peer {
            address,
            tls,
            sender: None,
        }
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        match &self.tls {
            None => {
                let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                sender
            }
            Some(tls) => {
                let stream = tls.connect("127.0.0.1", stream).await.unwrap();
                let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                sender
            }
        }
    }

    fn request(&self, sent: &Sent) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(sent.method)
            .uri(&sent.target)
            .header("host", self.address.to_string());
        if let Some(media_type) = sent.content_type {
            request = request.header("content-type", media_type);
        }
        if let Some(media_type) = sent.accept {
            request = request.header("accept", media_type);
        }
        let body = Full::new(Bytes::from(sent.body.clone().into_bytes()));
        request.body(body).unwrap()
    }

    /// Sends a request on the connection that is kept, and reads the whole response.
    pub async fn send(&mut self, sent: &Sent) -> Answer {
        let request = self.request(sent);
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await,
        };
        sender.ready().await.unwrap();
        let response = timeout(WAIT_MAX, sender.send_request(request));
        let response = response.await.expect("a response in time").unwrap();
        let answer = read(response).await;
        self.sender = Some(sender);
        answer
    }

    /// Opens a watch on a connection of its own; an answer if the server refuses it.
    pub async fn watch(&self, sent: &Sent) -> Result<Events, Answer> {
        let mut sender = self.connect().await;
        let response = timeout(WAIT_MAX, sender.send_request(self.request(sent)));
        let response = response.await.expect("a response in time").unwrap();
        if response.status() != 200 {
            return Err(read(response).await);
        }
        Ok(Events {
            headers: headers(&response),
            body: response.into_body(),
            rest: Vec::new(),
            _connection: sender,
        })
    }
}

fn headers(response: &http::Response<Incoming>) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    for name in COMPARED_HEADERS {
        let values = response.headers().get_all(name).iter();
        let values: Vec<&str> = values.map(|value| value.to_str().unwrap()).collect();
        if !values.is_empty() {
            headers.insert(name.to_owned(), values.join("\n"));
        }
    }
    headers
}

async fn read(response: http::Response<Incoming>) -> Answer {
    let code = response.status().as_u16();
    let headers = headers(&response);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    Answer {
        code,
        headers,
        body,
    }
}

/// The events of a watch.
pub struct Events {
    pub headers: BTreeMap<String, String>,
    body: Incoming,
    rest: Vec<u8>,
    _connection: SendRequest<Full<Bytes>>,
}

impl Events {
    /// Waits for the next event; none at the end, or if none comes in time.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = timeout(EVENT_WAIT_MAX, self.body.frame()).await.ok()??;
            self.rest.extend(frame.ok()?.into_data().unwrap());
        }
    }
}

/// Both servers. Dropping the value kills every process.
pub struct Servers {
    /// The sample API server, then ours.
    pub peers: [Peer; 2],
    sample: Process,
    _ours: TestServer,
    stores: [Server; 2],
    _directories: [tempfile::TempDir; 3],
}

impl Servers {
    pub async fn start(program: &Path) -> Servers {
        let ((guard, data), (own_guard, own_data)) = (data_dir(), data_dir());
        let stores = [Server::start(&data, &[]), Server::start(&own_data, &[])];
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new("sample");
        let trusted = authority.write_to(files.path(), "ca.crt");
        let issued = authority.server("sample").write_to(files.path(), "server");
        let mut command = Command::new(program);
        command
            .arg(format!("--etcd-servers={}", stores[0].url()))
            .args(["--bind-address=127.0.0.1", "--secure-port=0"])
            // Without a cache every answer follows from the state of the store alone.
            .args(["--watch-cache=false", "--etcd-compaction-interval=0"])
            .arg("--tls-cert-file")
            .arg(&issued.certificate)
            .arg("--tls-private-key-file")
            .arg(&issued.key)
            .stdin(Stdio::null());
        let sample = Process::spawn(&mut command);
        let line = sample.find_line(SERVING);
        let line = line.unwrap_or_else(|| panic!("{}", sample.log()));
        let address = line.rsplit(SERVING).next().unwrap().trim().parse().unwrap();
        let tls = ClientTls::new(ClientOptions {
            trusted_ca_file: Some(trusted),
            alpn: ALPN_HTTP,
            ..ClientOptions::default()
        });
        let client = Client::connect(Options {
            endpoints: vec![stores[1].url()],
            command_timeout: Some(Duration::from_secs(10)),
            ..Options::default()
        });
        let store = Arc::new(Kubernetes::new(client.unwrap()));
        let ours = testing::start_on(wardle::resources().unwrap(), store, |_| {}).await;
        let ours = ours.unwrap();
        let own_address = ours.url().trim_start_matches("http://").parse().unwrap();
        Servers {
            peers: [
                Peer::new(address, Some(tls.unwrap())),
                Peer::new(own_address, None),
            ],
            sample,
            _ours: ours,
            stores,
            _directories: [guard, own_guard, files],
        }
    }

    /// Stops every process.
    pub fn stop(self) {
        drop(self.sample);
        self.stores.into_iter().for_each(Server::kill);
    }
}
