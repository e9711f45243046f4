use portunus_client::Put;
use tokio_stream::StreamExt;

use crate::store::Store;

#[tokio::test]
async fn snapshot_is_received_whole_and_its_checksum_verified() {
    let test = "views::snapshot_is_received_whole_and_its_checksum_verified";
    for store in Store::both(test).await {
        for number in 0..20 {
            let value = vec![b'x'; 50_000];
            store
                .client
                .put(Put::new(number.to_string(), value))
                .await
                .unwrap();
        }
        let mut snapshot = store.client.snapshot_stream().await.unwrap();
        let mut bytes = 0;
        let mut pieces = 0;
        while let Some(data) = snapshot.next().await.unwrap() {
            bytes += data.len();
            pieces += 1;
        }
        assert!(snapshot.checksum().is_some());
        assert_eq!(snapshot.remaining_bytes(), 0);
        assert!(!snapshot.version().is_empty());
        assert!(snapshot.next().await.unwrap().is_none());
        // Whole pages of a database with a megabyte of values.
        assert!(bytes > 1_000_000 && bytes % 512 == 0, "{bytes}");
        assert!(pieces > 1);

        let stream = store.client.snapshot_stream().await.unwrap().into_stream();
        let sizes = stream.map(|data| data.unwrap().len());
        assert_eq!(sizes.fold(0, |sum, size| sum + size).await, bytes);
    }
}
