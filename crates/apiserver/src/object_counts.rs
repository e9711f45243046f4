//! The number of stored objects by resource, as a metric.

use std::time::Duration;

use portunus_client::kubernetes::CountOptions;
use tokio::time::sleep;

use crate::definition::Backing;
use crate::service::Service;
use crate::store::Keys;

/// The time between two counts, as in kube-apiserver.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

impl Service {
    /// Counts the stored objects of every resource once a minute, until the server ends.
    pub async fn keep_counting_objects(&self) {
        let drain = &self.shared().drain;
        loop {
            tokio::select! {
                () = self.count_objects() => {}
                () = drain.ending() => return,
            }
            tokio::select! {
                () = sleep(COUNT_INTERVAL) => {}
                () = drain.ending() => return,
            }
        }
    }

    /// Counts the stored objects of every resource. The store sends only numbers.
    pub async fn count_objects(&self) {
        let shared = self.shared();
        for resource in shared.api.resources() {
            if !matches!(resource.definition.backing, Backing::Store) {
                continue;
            }
            let prefix = Keys::new(&shared.storage_prefix, &resource.name).collection("");
            let count = shared.store.count(prefix.as_bytes(), CountOptions {});
            match count.await {
                Ok(count) => {
                    let name = resource.name.to_string();
                    shared.metrics.set_storage_objects(&name, count);
                }
                Err(error) => {
                    tracing::debug!(resource = %resource.name, %error, "counting objects failed");
                }
            }
        }
    }
}
