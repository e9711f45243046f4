//! The calls that are compared, and the data that they need.

use std::fmt;

use bytes::Bytes;
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest};
use tonic::transport::Channel;

/// Bytes of a value of get, put and watch.
pub const VALUE_BYTES: usize = 256;
/// Bytes of a listed object.
const OBJECT_BYTES: usize = 1024;
/// Puts of one transaction that fills the store.
const PUTS_PER_TXN: usize = 100;
/// Keys that the events of a watch change.
const EVENT_KEYS: u64 = 1000;

/// A client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The generated stubs of tonic, without a client library.
    Tonic,
    /// portunus-client.
    Portunus,
    /// etcd's Go client.
    Clientv3,
}

impl Library {
    /// All libraries, in the order of the runs of a round.
    pub const ALL: [Library; 3] = [Library::Tonic, Library::Portunus, Library::Clientv3];
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Library::Tonic => "tonic",
            Library::Portunus => "portunus",
            Library::Clientv3 => "clientv3",
        })
    }
}

/// A kind of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Linearizable reads of one key by many callers.
    Get,
    /// Puts of one key by many callers.
    Put,
    /// Lists of all objects through the Kubernetes-etcd interface, one after the other.
    List,
    /// One watch that receives all events from the first revision on.
    Watch,
}

impl Work {
    /// All kinds.
    pub const ALL: [Work; 4] = [Work::Get, Work::Put, Work::List, Work::Watch];

    /// Returns the name, which is also that of the argument of the Go program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Work::Get => "get",
            Work::Put => "put",
            Work::List => "list",
            Work::Watch => "watch",
        }
    }

    /// Returns what one operation is.
    #[must_use]
    pub fn operation(self) -> &'static str {
        match self {
            Work::Get | Work::Put => "call",
            Work::List => "list",
            Work::Watch => "event",
        }
    }

    /// Returns the key of get and put, the prefix of list and watch.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Work::Get | Work::Put => "/calls/key",
            Work::List => "/registry/objects/",
            Work::Watch => "/events/",
        }
    }

    /// Returns the number of concurrent callers.
    #[must_use]
    pub fn callers(self) -> usize {
        match self {
            Work::Get | Work::Put => 64,
            Work::List | Work::Watch => 1,
        }
    }
}

/// Writes what a kind of calls reads: `count` objects or events.
///
/// # Errors
/// The status of a failed write.
pub async fn fill(kv: &mut KvClient<Channel>, work: Work, count: u64) -> Result<(), tonic::Status> {
    let (bytes, keys) = match work {
        Work::Get | Work::Put => {
            let put = put(work.prefix().to_owned(), VALUE_BYTES);
            kv.put(put).await?;
            return Ok(());
        }
        Work::List => (OBJECT_BYTES, count),
        // A key only once in a transaction.
        Work::Watch => (VALUE_BYTES, EVENT_KEYS),
    };
    let mut written = 0;
    while written < count {
        let here = (count - written).min(PUTS_PER_TXN as u64);
        let puts = (written..written + here).map(|number| {
            let key = format!("{}{:08}", work.prefix(), number % keys);
            RequestOp {
                request: Some(Request::RequestPut(put(key, bytes))),
            }
        });
        let txn = TxnRequest {
            success: puts.collect(),
            ..TxnRequest::default()
        };
        kv.txn(txn).await?;
        written += here;
    }
    Ok(())
}

/// Returns a put of a value of this size.
pub fn put(key: String, bytes: usize) -> PutRequest {
    PutRequest {
        key: Bytes::from(key),
        value: Bytes::from(vec![b'v'; bytes]),
        ..PutRequest::default()
    }
}
