use super::*;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);
/// An empty SETTINGS frame, which an HTTP/2 server sends first.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Accepts connections and returns them; sends settings first if `answers`.
async fn server(answers: bool) -> (String, mpsc::UnboundedReceiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (accepted, connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if answers {
                stream.write_all(&SETTINGS).await.unwrap();
            }
            if accepted.send(stream).is_err() {
                return;
            }
        }
    });
    (address, connections)
}

fn balancer(addresses: &[&str], dial_timeout: Duration) -> Arc<Balancer> {
    let targets = addresses.iter().map(|address| Target {
        name: (*address).to_owned(),
        host: String::new(),
        tls: None,
        endpoint: Endpoint::from_shared(format!("http://{address}")).unwrap(),
    });
    Balancer::new(targets.collect(), dial_timeout)
}

async fn pick(balancer: &Arc<Balancer>) -> u64 {
    let picked = timeout(LONG / 2, balancer.pick()).await;
    picked.expect("an endpoint is ready").generation
}

/// Returns the endpoint of a generation.
fn endpoint_of(balancer: &Balancer, generation: u64) -> usize {
    let state = balancer.state();
    let is_it = |connection: &Connection| matches!(&connection.phase, Phase::Ready { picked, .. } if picked.generation == generation);
    state.connections.iter().position(is_it).unwrap()
}

async fn wait_for_ready(balancer: &Arc<Balancer>, count: usize) {
    let ready = |balancer: &Balancer| {
        let state = balancer.state();
        let is_ready = |it: &&Connection| matches!(&it.phase, Phase::Ready { preface, .. } if !preface.is_closed());
        state.connections.iter().filter(is_ready).count()
    };
    timeout(LONG / 2, async {
        while ready(balancer) != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn endpoint_that_never_answers_delays_no_call() {
    let (silent, _held) = server(false).await;
    let (good, _connections) = server(true).await;
    // The dial timeout does not expire during the test.
    let balancer = balancer(&[&silent, &good], LONG);
    for _ in 0..3 {
        let generation = pick(&balancer).await;
        assert_eq!(endpoint_of(&balancer, generation), 1);
    }
}

#[tokio::test]
async fn calls_go_to_ready_endpoints_in_turn() {
    let (first, _first) = server(true).await;
    let (second, _second) = server(true).await;
    let balancer = balancer(&[&first, &second], LONG);
    pick(&balancer).await;
    wait_for_ready(&balancer, 2).await;
    let mut picked = Vec::new();
    for _ in 0..4 {
        let generation = pick(&balancer).await;
        picked.push(endpoint_of(&balancer, generation));
    }
    assert_eq!([picked[0], picked[1]], [picked[2], picked[3]]);
    assert_ne!(picked[0], picked[1]);
}

#[tokio::test]
async fn closed_connection_is_replaced_before_the_next_call() {
    let (address, mut connections) = server(true).await;
    let balancer = balancer(&[&address], LONG);
    let before = pick(&balancer).await;
    drop(connections.recv().await.unwrap());
    wait_for_ready(&balancer, 0).await;
    let after = pick(&balancer).await;
    assert!(after > before);
}

#[tokio::test]
async fn discarded_connection_is_not_picked_again() {
    let (first, _first) = server(true).await;
    let (second, _second) = server(true).await;
    let balancer = balancer(&[&first, &second], LONG);
    let broken = pick(&balancer).await;
    balancer.discard(broken, "stream reset".to_owned());
    for _ in 0..4 {
        assert_ne!(pick(&balancer).await, broken);
    }
    assert_eq!(balancer.last_failure().as_deref(), Some("stream reset"));
}

#[tokio::test]
async fn failures_name_the_endpoint_and_the_cause() {
    let (silent, _held) = server(false).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = closed.local_addr().unwrap().to_string();
    drop(closed);
    for (address, cause) in [(&silent, "no answer within 50ms"), (&refusing, "refused")] {
        let balancer = balancer(&[address.as_str()], Duration::from_millis(50));
        let never = timeout(Duration::from_millis(500), balancer.pick()).await;
        assert!(never.is_err());
        let failure = balancer.last_failure().unwrap();
        assert!(
            failure.contains(address.as_str()) && failure.contains(cause),
            "{failure}"
        );
    }
}
