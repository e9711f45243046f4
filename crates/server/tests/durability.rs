//! Acknowledged writes survive any crash: the process is killed without warning, again and
//! again, on one directory.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod writers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::random::Random;
use common::{Clients, Server, connect, data_dir, launch, refusal};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    HashKvRequest, HashKvResponse, PutRequest, RangeRequest, StatusRequest,
};
use portunus_sim::torture::{Options, Until};
use writers::{Writer, Writing};

/// Small enough that log snapshots, backend commits and compaction all happen within a round.
const RESTLESS: &[&str] = &[
    "--snapshot-count=100",
    "--snapshot-catchup-entries=10",
    "--backend-batch-interval=5ms",
    "--backend-batch-limit=20",
    "--compaction-batch-limit=10",
    "--compaction-sleep-interval=1ms",
];

const WRITERS: usize = 4;

/// Runs all writers over separate connections until `acknowledgements` requests are answered,
/// kills the member at that moment, and starts it again.
async fn crash_round(
    server: Server,
    restart: impl FnOnce() -> Server,
    writers: Vec<Writer>,
    acknowledgements: u64,
) -> (Server, Vec<Writer>) {
    let writing = Writing::begin(&server, writers, acknowledgements).await;
    server.kill();
    let mut writers = writing.ended().await;

    let server = restart();
    let mut clients = server.connect().await;
    for writer in &mut writers {
        writer.check_and_settle(&mut clients).await;
    }
    writers::check_revisions(&writers, &mut clients).await;
    (server, writers)
}

async fn hash_kv(clients: &mut Clients, revision: i64) -> HashKvResponse {
    let request = HashKvRequest { revision };
    clients
        .maintenance
        .hash_kv(request)
        .await
        .unwrap()
        .into_inner()
}

/// Puts, deletes, transactions, leases and compactions from several connections; the log is
/// compacted and the backend commits all the time.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kills_at_any_time() {
    let (_guard, dir) = data_dir();
    let mut random = Random::seeded("durability");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(number, random.fork()))
        .collect();
    let mut server = Server::start(&dir, RESTLESS);
    for _ in 0..6 {
        let acknowledgements = 1 + random.below(600);
        let restart = || Server::start(&dir, RESTLESS);
        (server, writers) = crash_round(server, restart, writers, acknowledgements).await;
    }

    // The data on disk is the same as that in memory.
    let before = hash_kv(&mut server.connect().await, 0).await;
    server.stop();
    let server = Server::start(&dir, RESTLESS);
    let after = hash_kv(&mut server.connect().await, 0).await;
    assert_eq!(
        after.header.unwrap().revision,
        before.header.unwrap().revision
    );
    assert_eq!(
        (after.hash, after.compact_revision, after.hash_revision),
        (before.hash, before.compact_revision, before.hash_revision)
    );
    // It is the same whether the member was stopped or killed.
    server.kill();
    let server = Server::start(&dir, RESTLESS);
    let killed = hash_kv(&mut server.connect().await, 0).await;
    assert_eq!(
        (killed.hash, killed.hash_revision),
        (before.hash, before.hash_revision)
    );
}

/// Eight clients and four watchers share a few keys. After each of thirty kills, some of them
/// before the member served, all responses fit the log, the backend and one order. `torture`
/// does the same without a limit.
#[tokio::test(flavor = "multi_thread")]
async fn answers_events_and_files_agree_through_thirty_kills() {
    let (guard, dir) = data_dir();
    let options = torture(PathBuf::from(env!("CARGO_BIN_EXE_portunus")), &dir, 30);
    match portunus_sim::torture::run(&options, |_| {}).await {
        Ok(progress) => {
            eprintln!("{progress}");
            assert!(progress.kills >= 30, "{progress}");
            assert!(progress.kills_while_starting > 0, "{progress}");
            assert!(progress.turns > 5 && progress.answered > 100, "{progress}");
        }
        Err(error) => panic!("{}\nkept in {}", error.chain(), guard.keep().display()),
    }
}

/// The check above can fail: it detects a member that restarts without its newest writes, or
/// with a backend that does not belong to its log.
#[tokio::test(flavor = "multi_thread")]
async fn lost_writes_are_detected_by_the_checks() {
    use portunus_sim::torture::TortureError;
    for forgotten in ["member", "member/wal"] {
        let (guard, dir) = data_dir();
        // Keeps a copy once there are writes to lose, and restores it later. A kill may end the
        // script between two commands, while the command continues: a copy is complete before
        // it gets its name, and the next start repeats what is missing.
        let script = format!(
            "#!/bin/sh\n\
             cd '{dir}' 2>/dev/null && {{\n\
             \techo >> ../starts\n\
             \tstarts=$(wc -l < ../starts)\n\
             \tif [ -d ../kept ] && [ $starts -ge 8 ]; then\n\
             \t\tcp -r ../kept ../copy.$$ && rm -rf '{forgotten}' && mv -T ../copy.$$ '{forgotten}'\n\
             \telif [ ! -d ../kept ] && [ $starts -ge 4 ] && [ -d '{forgotten}' ]; then\n\
             \t\tcp -r '{forgotten}' ../kept.$$ && mv -T ../kept.$$ ../kept\n\
             \tfi\n\
             }}\n\
             exec '{portunus}' \"$@\"\n",
            dir = dir.display(),
            portunus = env!("CARGO_BIN_EXE_portunus"),
        );
        let forgetful = guard.path().join("forgetful");
        std::fs::write(&forgetful, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&forgetful, executable).unwrap();
        let options = torture(forgetful, &dir, 60);
        let error = portunus_sim::torture::run(&options, |_| {})
            .await
            .expect_err("it forgot");
        let is_found_out = match &error {
            // Detected by clients, by comparing files, or by the member itself.
            TortureError::NotLinearizable(_) | TortureError::AtRest(_) => true,
            TortureError::NotReady { log } => log.contains("synced writes are lost"),
            _ => false,
        };
        assert!(is_found_out, "{forgotten}: {}", error.chain());
    }
}

fn torture(portunus: PathBuf, dir: &Path, kills: u64) -> Options {
    Options {
        portunus,
        data_dir: dir.to_owned(),
        seed: Random::seeded("torture").seed(),
        clients: 8,
        until: Until::Kills(kills),
    }
}

/// The backend matches the log: an older copy of the backend and the log make the same store as
/// the newest backend and the log.
#[tokio::test(flavor = "multi_thread")]
async fn older_backend_and_the_log_restore_the_same_store() {
    let (guard, dir) = data_dir();
    let mut random = Random::seeded("older backend");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(number, random.fork()))
        .collect();
    let backend = dir.join("member/portunus");
    let older = guard.path().join("older");
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        for file in std::fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    };
    let mut server = Server::start(&dir, RESTLESS);
    for round in 0..4 {
        let restart = || {
            if round == 0 {
                copy(&backend, &older);
            }
            Server::start(&dir, RESTLESS)
        };
        (server, writers) = crash_round(server, restart, writers, 200).await;
    }
    server.kill();
    let newest = Server::start(&dir, RESTLESS);
    let expected = hash_kv(&mut newest.connect().await, 0).await;
    newest.kill();

    copy(&older, &backend);
    let server = Server::start(&dir, RESTLESS);
    let mut clients = server.connect().await;
    let replayed = hash_kv(&mut clients, 0).await;
    assert_eq!(
        (
            replayed.hash,
            replayed.hash_revision,
            replayed.compact_revision
        ),
        (
            expected.hash,
            expected.hash_revision,
            expected.compact_revision
        )
    );
    for writer in &mut writers {
        writer.check_and_settle(&mut clients).await;
    }
}

/// The backend holds nothing: everything is restored from the log alone.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_without_a_backend_commit() {
    const LAZY: &[&str] = &[
        "--backend-batch-interval=1h",
        "--backend-batch-limit=1000000",
    ];
    let (_guard, dir) = data_dir();
    let mut random = Random::seeded("durability from the log");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(number, random.fork()))
        .collect();
    let mut server = Server::start(&dir, LAZY);
    for _ in 0..3 {
        let acknowledgements = 1 + random.below(300);
        let restart = || Server::start(&dir, LAZY);
        (server, writers) = crash_round(server, restart, writers, acknowledgements).await;
    }
}

/// "Ready" means that the log is applied: even a serializable read finds every acknowledged
/// write.
#[tokio::test(flavor = "multi_thread")]
async fn ready_member_has_applied_its_log() {
    const LAZY: &[&str] = &["--backend-batch-interval=1h"];
    let (_guard, dir) = data_dir();
    Server::start(&dir, LAZY).stop();
    let server = Server::start(&dir, LAZY);
    let put = PutRequest {
        key: "a".into(),
        ..PutRequest::default()
    };
    server.connect().await.kv.put(put).await.unwrap();
    server.kill();
    let server = Server::start(&dir, LAZY);
    let request = RangeRequest {
        key: "a".into(),
        serializable: true,
        ..RangeRequest::default()
    };
    let mut clients = server.connect().await;
    assert_eq!(
        clients.kv.range(request).await.unwrap().into_inner().count,
        1
    );
}

/// Large values fill segments, so that whole segments of the log are removed while the member
/// is killed.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_the_release_of_log_segments() {
    const VALUE_BYTES: usize = 1 << 20;
    const KEYS: usize = 4;
    let flags = &[
        "--snapshot-count=10",
        "--snapshot-catchup-entries=1",
        "--compaction-batch-limit=10",
    ];
    let (_guard, dir) = data_dir();
    let mut random = Random::seeded("segments");
    let mut written = 0u64;
    for _ in 0..2 {
        let server = Server::start(&dir, flags);
        let mut clients = server.connect().await;
        // Every acknowledged value of the earlier rounds.
        for number in written.saturating_sub(KEYS as u64)..written {
            let request = RangeRequest {
                key: format!("large-{}", number as usize % KEYS).into(),
                ..RangeRequest::default()
            };
            let kvs = clients.kv.range(request).await.unwrap().into_inner().kvs;
            assert_eq!(kvs[0].value[..8], number.to_be_bytes());
            assert_eq!(kvs[0].value.len(), VALUE_BYTES);
        }
        let released = |server: &Server| {
            server.process.log().lines().any(|line| {
                line.contains("segments_released") && !line.contains("\"segments_released\":0")
            })
        };
        let mut extra = random.below(12);
        while !released(&server) || extra > 0 {
            let mut value = vec![b'v'; VALUE_BYTES];
            value[..8].copy_from_slice(&written.to_be_bytes());
            let request = PutRequest {
                key: format!("large-{}", written as usize % KEYS).into(),
                value: value.into(),
                ..PutRequest::default()
            };
            clients.kv.put(request).await.unwrap();
            written += 1;
            extra = extra.saturating_sub(1);
            assert!(
                written < 1000,
                "no segment was released:\n{}",
                server.process.log()
            );
        }
        server.kill();
    }
    let server = Server::start(&dir, flags);
    let revision = hash_kv(&mut server.connect().await, 0).await.hash_revision;
    assert_eq!(revision, i64::try_from(written).unwrap() + 1);
}

/// A member that is killed while it starts, for the first time or later, starts the next time.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kills_during_the_start() {
    let (_guard, dir) = data_dir();
    let mut random = Random::seeded("start");
    // There is no event for "in the middle of the start", so it is killed at a random time.
    let interrupted = |random: &mut Random| {
        let mut process = launch(&dir, RESTLESS);
        std::thread::sleep(Duration::from_micros(random.below(250_000)));
        process.kill();
    };
    for _ in 0..8 {
        interrupted(&mut random);
    }
    let mut writer = Writer::new(0, random.fork());
    let server = Server::start(&dir, RESTLESS);
    let restart = || Server::start(&dir, RESTLESS);
    let (server, writers) = crash_round(server, restart, vec![writer], 200).await;
    [writer] = writers.try_into().ok().unwrap();
    let before = hash_kv(&mut server.connect().await, 0).await;
    server.kill();
    for _ in 0..8 {
        interrupted(&mut random);
    }
    let server = Server::start(&dir, RESTLESS);
    let mut clients = server.connect().await;
    writer.check_and_settle(&mut clients).await;
    let after = hash_kv(&mut clients, 0).await;
    assert_eq!(
        (after.hash, after.hash_revision),
        (before.hash, before.hash_revision)
    );
}

/// Terms only grow, ids never change, and a compaction is not undone.
#[tokio::test(flavor = "multi_thread")]
async fn restart_keeps_ids_term_and_compaction() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, RESTLESS);
    let mut clients = server.connect().await;
    for number in 0..20 {
        let request = PutRequest {
            key: "a".into(),
            value: number.to_string().into(),
            ..PutRequest::default()
        };
        clients.kv.put(request).await.unwrap();
    }
    let request = portunus_proto::etcdserverpb::CompactionRequest {
        revision: 10,
        physical: false,
    };
    clients.kv.compact(request).await.unwrap();
    let before = clients
        .maintenance
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    server.kill();
    let server = Server::start(&dir, RESTLESS);
    let mut clients = connect(server.address).await;
    let after = clients
        .maintenance
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    let (header_before, header_after) = (before.header.unwrap(), after.header.unwrap());
    assert_eq!(header_after.cluster_id, header_before.cluster_id);
    assert_eq!(header_after.member_id, header_before.member_id);
    assert_eq!(header_after.revision, 21);
    assert!(after.raft_term > before.raft_term);
    assert!(after.raft_applied_index > before.raft_applied_index);
    let at = |revision| RangeRequest {
        key: "a".into(),
        revision,
        ..RangeRequest::default()
    };
    let compacted = EtcdError::Compacted;
    assert_eq!(
        refusal(clients.kv.range(at(9)).await),
        (compacted.code(), compacted.text().to_owned())
    );
    assert_eq!(
        clients.kv.range(at(10)).await.unwrap().into_inner().kvs[0].value,
        "8"
    );
}
