//! The calls of tonic's stubs and of portunus-client, in this process.

use portunus_client::kubernetes::{Interface, Kubernetes, ListOptions};
use portunus_client::{Client, Put, Range, Watch};
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::watch_client::WatchClient;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{RangeRequest, WatchCreateRequest, WatchRequest};
use tonic::transport::Channel;

use super::measure::{Cost, MeasureError, once, repeat};
use super::work::{VALUE_BYTES, Work, put};
use crate::window::WindowDurations;

/// Messages of tonic's stubs may have this size; the default of 4 MB is less than a list.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Returns the end of the keys with a prefix of this benchmark, which ends with a byte below 255.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Returns a range of the keys of a kind of calls.
fn range(work: Work) -> RangeRequest {
    let end = match work {
        Work::Get | Work::Put => Vec::new(),
        Work::List | Work::Watch => prefix_end(work.prefix()),
    };
    RangeRequest {
        key: work.prefix().into(),
        range_end: end.into(),
        ..RangeRequest::default()
    }
}

/// Runs calls of tonic's stubs.
pub async fn run_tonic(
    channel: &Channel,
    work: Work,
    events: u64,
    durations: WindowDurations,
) -> Result<Cost, MeasureError> {
    let kv = KvClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    match work {
        Work::Get | Work::List => {
            let request = range(work);
            repeat(durations, work.callers(), move || {
                let (mut kv, request) = (kv.clone(), request.clone());
                async move {
                    kv.range(request).await?;
                    Ok(())
                }
            })
            .await
        }
        Work::Put => {
            let request = put(work.prefix().to_owned(), VALUE_BYTES);
            repeat(durations, work.callers(), move || {
                let (mut kv, request) = (kv.clone(), request.clone());
                async move {
                    kv.put(request).await?;
                    Ok(())
                }
            })
            .await
        }
        Work::Watch => once(watch_with_tonic(channel.clone(), events)).await,
    }
}

async fn watch_with_tonic(channel: Channel, events: u64) -> Result<u64, MeasureError> {
    let range = range(Work::Watch);
    let create = WatchCreateRequest {
        key: range.key,
        range_end: range.range_end,
        start_revision: 1,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let mut client = WatchClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    // The receiver is alive: it is used below.
    let _ = sender.send(request).await;
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut responses = client.watch(requests).await?.into_inner();
    let mut received = 0;
    while let Some(response) = responses.message().await? {
        received += response.events.len() as u64;
        if received >= events {
            return Ok(received);
        }
    }
    Err(MeasureError::WatchEnded { received })
}

/// Runs calls of portunus-client.
pub async fn run_portunus(
    client: &Client,
    work: Work,
    events: u64,
    durations: WindowDurations,
) -> Result<Cost, MeasureError> {
    let client = client.clone();
    match work {
        Work::Get => {
            repeat(durations, work.callers(), move || {
                let client = client.clone();
                async move {
                    client.range(Range::key(work.prefix())).await?;
                    Ok(())
                }
            })
            .await
        }
        Work::Put => {
            let value = put(String::new(), VALUE_BYTES).value;
            repeat(durations, work.callers(), move || {
                let (client, value) = (client.clone(), value.clone());
                async move {
                    client.put(Put::new(work.prefix(), value)).await?;
                    Ok(())
                }
            })
            .await
        }
        Work::List => {
            let interface = std::rc::Rc::new(Kubernetes::new(client));
            repeat(durations, work.callers(), move || {
                let interface = std::rc::Rc::clone(&interface);
                async move {
                    let prefix = work.prefix().as_bytes();
                    interface.list(prefix, ListOptions::default()).await?;
                    Ok(())
                }
            })
            .await
        }
        Work::Watch => once(watch_with_portunus(client, events)).await,
    }
}

async fn watch_with_portunus(client: Client, events: u64) -> Result<u64, MeasureError> {
    let mut watcher = client.watch(Watch::prefix(Work::Watch.prefix()).from_revision(1));
    let mut received = 0;
    while let Some(response) = watcher.next().await? {
        received += response.events.len() as u64;
        if received >= events {
            return Ok(received);
        }
    }
    Err(MeasureError::WatchEnded { received })
}
