use portunus_testkit::certificates::{Authority, IssuedFiles};
use portunus_tls::{
    ALPN_GRPC, AllowedNames, CipherSuites, ClientOptions, ClientTls, KeyPairFiles, ServerOptions,
    ServerTls, VersionRange,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn grpc(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes
}

/// A connection and the socket of its server.
async fn pair() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connection = Connection::open(&Endpoint::plain(&address)).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut greeting = vec![0; PREFACE.len() + 9 + 6 + 9 + 4];
    server.read_exact(&mut greeting).await.unwrap();
    assert!(greeting.starts_with(PREFACE));
    (connection, server)
}

async fn answer(server: &mut TcpStream, kind: Kind, flags: u8, stream: StreamId, payload: &[u8]) {
    let mut bytes = BytesMut::new();
    frame::put_header(&mut bytes, payload.len(), kind, flags, stream);
    bytes.put_slice(payload);
    server.write_all(&bytes).await.unwrap();
}

async fn next(connection: &mut Connection) -> Event {
    loop {
        if let Some(event) = connection.next_event() {
            return event;
        }
        connection.receive().await.unwrap();
    }
}

#[tokio::test]
async fn message_is_assembled_from_any_number_of_frames() {
    let (mut connection, mut server) = pair().await;
    let two = [grpc(b"one"), grpc(b"two")].concat();
    for piece in [&two[..3], &two[3..9], &two[9..]] {
        answer(&mut server, Kind::Data, 0, 1, piece).await;
    }
    answer(&mut server, Kind::Headers, flag::END_STREAM, 1, b"").await;
    for expected in [&b"one"[..], b"two"] {
        match next(&mut connection).await {
            Event::Message(1, message) => assert_eq!(message, expected),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(next(&mut connection).await, Event::End(1)));
}

#[tokio::test]
async fn ping_is_answered_with_its_payload() {
    let (mut connection, mut server) = pair().await;
    answer(&mut server, Kind::Ping, 0, 0, b"12345678").await;
    connection.receive().await.unwrap();
    connection.flush().await.unwrap();
    let mut received = [0; 17];
    server.read_exact(&mut received).await.unwrap();
    assert_eq!(received[3..5], [Kind::Ping as u8, flag::ACK]);
    assert_eq!(&received[9..], b"12345678");
}

#[tokio::test]
async fn message_beyond_the_window_waits_for_an_update() {
    let (mut connection, mut server) = pair().await;
    connection.request(Method::Put, &[0; 50_000]);
    connection.request(Method::Put, &[0; 50_000]);
    assert_eq!(connection.held.len(), 1);
    let before = connection.outgoing.len();
    let granted = 50_000_u32.to_be_bytes();
    answer(&mut server, Kind::WindowUpdate, 0, 0, &granted).await;
    connection.receive().await.unwrap();
    assert!(connection.held.is_empty());
    assert!(connection.outgoing.len() > before + 50_000);
}

#[tokio::test]
async fn only_the_last_frame_of_a_large_message_ends_the_stream() {
    let (mut connection, _server) = pair().await;
    connection.send_message(1, &[7; 20_000], true);
    let first = FrameHeader::cut(&mut connection.outgoing).unwrap();
    assert_eq!((first.length, first.flags), (FRAME_BYTES_MAX, 0));
    connection.outgoing.advance(first.length);
    let last = FrameHeader::cut(&mut connection.outgoing).unwrap();
    assert_eq!(last.length, 20_000 + 5 - FRAME_BYTES_MAX);
    assert_eq!(last.flags, flag::END_STREAM);
}

fn key_pair(files: IssuedFiles) -> KeyPairFiles {
    KeyPairFiles {
        certificate: files.certificate,
        key: files.key,
    }
}

#[tokio::test]
async fn connection_with_tls_presents_its_certificate_and_exchanges_frames() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("CA");
    let ca = authority.write_to(folder.path(), "ca.crt");
    let issued = |name| authority.server(name).write_to(folder.path(), name);
    let server = ServerTls::new(ServerOptions {
        identity: key_pair(issued("server")),
        trusted_ca_file: Some(ca.clone()),
        crl_file: None,
        allowed: AllowedNames::default(),
        versions: VersionRange::default(),
        cipher_suites: CipherSuites::default(),
        alpn: ALPN_GRPC,
    });
    let tls = ClientTls::new(ClientOptions {
        trusted_ca_file: Some(ca),
        identity: Some(key_pair(issued("client"))),
        alpn: ALPN_GRPC,
        ..ClientOptions::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint {
        tls: Some(tls.unwrap()),
        ..Endpoint::plain(&listener.local_addr().unwrap().to_string())
    };
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        server.unwrap().accept(stream).await.unwrap()
    };
    let (connection, mut accepted) = tokio::join!(Connection::open(&endpoint), accepting);
    let mut connection = connection.unwrap();
    assert_eq!(accepted.client.unwrap().common_name, "client");

    // Larger than a record of TLS, so that reading takes several.
    let sent = [7; 50_000];
    connection.request(Method::Put, &sent);
    connection.flush().await.unwrap();
    let mut received = vec![0; PREFACE.len() + sent.len()];
    accepted.stream.read_exact(&mut received).await.unwrap();
    assert!(received.starts_with(PREFACE));

    let mut bytes = BytesMut::new();
    put_message(&mut bytes, 1, &sent, true);
    accepted.stream.write_all(&bytes).await.unwrap();
    accepted.stream.flush().await.unwrap();
    match next(&mut connection).await {
        Event::Message(1, message) => assert_eq!(message, &sent[..]),
        other => panic!("{other:?}"),
    }
    assert!(matches!(next(&mut connection).await, Event::End(1)));
}

#[tokio::test]
async fn closed_connection_is_an_error() {
    let (mut connection, server) = pair().await;
    drop(server);
    assert!(matches!(
        connection.receive().await,
        Err(WireError::Closed | WireError::Socket(_))
    ));
}
