//! Whole texts, taken from what etcdctl and etcdutl 3.7.1 print.

use std::time::Duration;

use portunus_proto::etcdserverpb::{
    AlarmMember, AlarmResponse, AlarmType, DeleteRangeResponse, DowngradeInfo, LeaseGrantResponse,
    LeaseLeasesResponse, LeaseStatus, LeaseTimeToLiveResponse, Member, MemberListResponse,
    PutResponse, RangeResponse, ResponseHeader, ResponseOp, StatusResponse, TxnResponse,
    WatchResponse, response_op,
};
use portunus_proto::mvccpb::{Event, KeyValue};

use super::{Answer, EndpointHealth, EndpointStatus, Format, Printer};

const CLUSTER: u64 = 324_952_591_200_643_719;
const MEMBER: u64 = 3_319_814_642_761_637_952;

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: CLUSTER,
        member_id: MEMBER,
        revision,
        raft_term: 2,
    })
}

fn kv(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        create_revision: 2,
        mod_revision: 4,
        version: 3,
        lease: 0,
    }
}

fn printed_as(format: Format, hex: bool, answer: &Answer<'_>) -> String {
    let printer = Printer {
        format,
        hex,
        value_only: false,
    };
    String::from_utf8(printer.render(answer).unwrap().out).unwrap()
}

fn simple(answer: &Answer<'_>) -> String {
    printed_as(Format::Simple, false, answer)
}

fn json(answer: &Answer<'_>) -> String {
    printed_as(Format::Json, false, answer)
}

fn fields(answer: &Answer<'_>) -> String {
    printed_as(Format::Fields, false, answer)
}

#[test]
fn range_prints_as_in_etcdctl() {
    let response = RangeResponse {
        header: header(4),
        kvs: vec![kv("a", "2")],
        more: false,
        count: 1,
    };
    let answer = Answer::Range(&response);
    assert_eq!(simple(&answer), "a\n2\n");
    assert_eq!(printed_as(Format::Simple, true, &answer), "\\x61\n\\x32\n");
    assert_eq!(
        json(&answer),
        concat!(
            r#"{"header":{"cluster_id":324952591200643719,"member_id":3319814642761637952,"#,
            r#""revision":4,"raft_term":2},"kvs":[{"key":"YQ==","create_revision":2,"#,
            r#""mod_revision":4,"version":3,"value":"Mg=="}],"count":1}"#,
            "\n"
        )
    );
    assert_eq!(
        printed_as(Format::Fields, true, &answer),
        r#""ClusterID" : 48276a8f75b6a87
"MemberID" : 2e1259d415f2a040
"Revision" : 4
"RaftTerm" : 2
"Key" : "a"
"CreateRevision" : 2
"ModRevision" : 4
"Version" : 3
"Value" : "2"
"Lease" : 0000000000000000
"More" : false
"Count" : 1
"#
    );
}

#[test]
fn print_value_only_prints_bare_values() {
    let response = RangeResponse {
        kvs: vec![kv("a", "1"), kv("b", "2")],
        ..RangeResponse::default()
    };
    let printer = Printer {
        format: Format::Simple,
        hex: false,
        value_only: true,
    };
    let printed = printer.render(&Answer::Range(&response)).unwrap();
    assert_eq!(printed.out, b"1\n2\n");
}

#[test]
fn values_that_are_not_utf8_print_unchanged() {
    let mut pair = kv("", "");
    pair.key = vec![b'k', 0xff].into();
    pair.value = vec![0, 0xfe].into();
    let response = RangeResponse {
        kvs: vec![pair],
        ..RangeResponse::default()
    };
    let printer = Printer {
        format: Format::Simple,
        hex: false,
        value_only: false,
    };
    let printed = printer.render(&Answer::Range(&response)).unwrap();
    assert_eq!(printed.out, b"k\xff\n\0\xfe\n");
    let fields = fields(&Answer::Range(&response));
    assert!(fields.contains("\"Key\" : \"k\\xff\"\n"), "{fields}");
}

#[test]
fn put_with_prev_kv_prints_as_in_etcdctl() {
    let response = PutResponse {
        header: header(4),
        prev_kv: Some(kv("a", "1")),
    };
    let answer = Answer::Put(&response);
    assert_eq!(simple(&answer), "OK\na\n1\n");
    assert!(json(&answer).ends_with(concat!(
        r#""prev_kv":{"key":"YQ==","create_revision":2,"mod_revision":4,"#,
        r#""version":3,"value":"MQ=="}}"#,
        "\n"
    )));
    assert!(fields(&answer).contains("\"PrevKey\" : \"a\"\n\"PrevCreateRevision\" : 2\n"));
}

#[test]
fn txn_prints_as_in_etcdctl() {
    let inner = Some(ResponseHeader {
        revision: 8,
        ..ResponseHeader::default()
    });
    let operation = |response| ResponseOp {
        response: Some(response),
    };
    let response = TxnResponse {
        header: header(8),
        succeeded: true,
        responses: vec![
            operation(response_op::Response::ResponsePut(PutResponse {
                header: inner,
                prev_kv: None,
            })),
            operation(response_op::Response::ResponseDeleteRange(
                DeleteRangeResponse {
                    header: inner,
                    deleted: 0,
                    prev_kvs: Vec::new(),
                },
            )),
        ],
    };
    let answer = Answer::Txn(&response);
    assert_eq!(simple(&answer), "SUCCESS\n\nOK\n\n0\n");
    assert!(json(&answer).ends_with(concat!(
        r#""succeeded":true,"responses":[{"Response":{"response_put":{"header":{"revision":8}}}},"#,
        r#"{"Response":{"response_delete_range":{"header":{"revision":8}}}}]}"#,
        "\n"
    )));
    assert!(fields(&answer).ends_with(
        "\"Succeeded\" : true\n\"ClusterID\" : 0\n\"MemberID\" : 0\n\"Revision\" : 8\n\
         \"RaftTerm\" : 0\n\"ClusterID\" : 0\n\"MemberID\" : 0\n\"Revision\" : 8\n\
         \"RaftTerm\" : 0\n\"Deleted\" : 0\n"
    ));
}

#[test]
fn watch_event_prints_as_in_etcdctl() {
    let response = WatchResponse {
        header: header(14),
        events: vec![Event {
            r#type: 1,
            kv: Some(KeyValue {
                key: "w1".into(),
                mod_revision: 14,
                ..KeyValue::default()
            }),
            prev_kv: Some(kv("w1", "y")),
        }],
        ..WatchResponse::default()
    };
    let answer = Answer::Watch(&response);
    assert_eq!(simple(&answer), "DELETE\nw1\ny\nw1\n\n");
    assert_eq!(
        json(&answer),
        concat!(
            r#"{"Header":{"cluster_id":324952591200643719,"member_id":3319814642761637952,"#,
            r#""revision":14,"raft_term":2},"Events":[{"type":1,"kv":{"key":"dzE=","#,
            r#""mod_revision":14},"prev_kv":{"key":"dzE=","create_revision":2,"#,
            r#""mod_revision":4,"version":3,"value":"eQ=="}}],"CompactRevision":0,"#,
            r#""Canceled":false,"Created":false,"CancelReason":""}"#,
            "\n"
        )
    );
    assert!(fields(&answer).contains("\"Type\" : DELETE\n\"PrevKey\" : \"w1\"\n"));
}

#[test]
fn lease_responses_print_as_in_etcdctl() {
    let id = 0x2040_a1e1_11f3_8c0d;
    let granted = LeaseGrantResponse {
        header: header(4),
        id,
        ttl: 100,
        error: String::new(),
    };
    let answer = Answer::LeaseGrant(&granted);
    assert_eq!(
        simple(&answer),
        "lease 2040a1e111f38c0d granted with TTL(100s)\n"
    );
    assert!(json(&answer).ends_with(concat!(
        r#""raft_term":2,"ID":2324035395764063245,"TTL":100,"Error":""}"#,
        "\n"
    )));

    let mut left = LeaseTimeToLiveResponse {
        header: header(5),
        id,
        ttl: 99,
        granted_ttl: 100,
        keys: vec!["k".into(), "l".into()],
    };
    let answer = Answer::TimeToLive {
        response: &left,
        keys: true,
    };
    assert_eq!(
        simple(&answer),
        "lease 2040a1e111f38c0d granted with TTL(100s), remaining(99s), attached keys([k l])\n"
    );
    assert!(json(&answer).ends_with(concat!(
        r#""id":2324035395764063245,"ttl":99,"granted-ttl":100,"keys":["aw==","bA=="]}"#,
        "\n"
    )));

    (left.ttl, left.granted_ttl) = (-1, 0);
    let answer = Answer::TimeToLive {
        response: &left,
        keys: false,
    };
    assert_eq!(simple(&answer), "lease 2040a1e111f38c0d already expired\n");

    let list = LeaseLeasesResponse {
        header: header(5),
        leases: vec![LeaseStatus { id }],
    };
    assert_eq!(
        simple(&Answer::Leases(&list)),
        "found 1 leases\n2040a1e111f38c0d\n"
    );
    assert!(json(&Answer::Leases(&list)).ends_with("\"leases\":[{\"id\":2324035395764063245}]}\n"));
}

#[test]
fn member_list_prints_as_in_etcdctl() {
    let response = MemberListResponse {
        header: header(0),
        members: vec![Member {
            id: MEMBER,
            name: "default".to_owned(),
            peer_urls: vec!["http://127.0.0.1:23800".to_owned()],
            client_urls: vec!["http://127.0.0.1:23790".to_owned()],
            is_learner: false,
        }],
    };
    let answer = Answer::Members(&response);
    assert_eq!(
        simple(&answer),
        "2e1259d415f2a040, started, default, http://127.0.0.1:23800, http://127.0.0.1:23790, false\n"
    );
    assert_eq!(
        printed_as(Format::Table, false, &answer),
        "\
┌──────────────────┬─────────┬─────────┬────────────────────────┬────────────────────────┬────────────┐
│        ID        │ STATUS  │  NAME   │       PEER ADDRS       │      CLIENT ADDRS      │ IS LEARNER │
├──────────────────┼─────────┼─────────┼────────────────────────┼────────────────────────┼────────────┤
│ 2e1259d415f2a040 │ started │ default │ http://127.0.0.1:23800 │ http://127.0.0.1:23790 │      false │
└──────────────────┴─────────┴─────────┴────────────────────────┴────────────────────────┴────────────┘
"
    );
    assert_eq!(
        printed_as(Format::Json, true, &answer),
        concat!(
            r#"{"header":{"cluster_id":"48276a8f75b6a87","member_id":"2e1259d415f2a040","#,
            r#""raft_term":2},"members":[{"ID":"2e1259d415f2a040","name":"default","#,
            r#""peerURLs":["http://127.0.0.1:23800"],"clientURLs":["http://127.0.0.1:23790"]}]}"#,
            "\n"
        )
    );
}

#[test]
fn endpoint_status_prints_as_in_etcdctl() {
    let list = [EndpointStatus {
        endpoint: "127.0.0.1:23790".to_owned(),
        response: StatusResponse {
            header: header(8),
            version: "3.7.1".to_owned(),
            db_size: 20_480,
            leader: MEMBER,
            raft_index: 17,
            raft_term: 2,
            raft_applied_index: 17,
            errors: Vec::new(),
            db_size_in_use: 16_384,
            is_learner: false,
            storage_version: "3.7.0".to_owned(),
            db_size_quota: 2_147_483_648,
            downgrade_info: Some(DowngradeInfo::default()),
        },
    }];
    let answer = Answer::Status(&list);
    assert_eq!(
        simple(&answer),
        "127.0.0.1:23790, 2e1259d415f2a040, 3.7.1, 3.7.0, 20 kB, 16 kB, 20%, 2.1 GB, true, false, \
         2, 17, 17, , , false\n"
    );
    assert_eq!(
        json(&answer),
        concat!(
            r#"[{"Endpoint":"127.0.0.1:23790","Status":{"header":{"cluster_id":324952591200643719,"#,
            r#""member_id":3319814642761637952,"revision":8,"raft_term":2},"version":"3.7.1","#,
            r#""dbSize":20480,"leader":3319814642761637952,"raftIndex":17,"raftTerm":2,"#,
            r#""raftAppliedIndex":17,"dbSizeInUse":16384,"storageVersion":"3.7.0","#,
            r#""dbSizeQuota":2147483648,"downgradeInfo":{}}}]"#,
            "\n"
        )
    );
    let fields = fields(&answer);
    assert!(fields.contains("\"Errors\" : []\n\"Endpoint\" : \"127.0.0.1:23790\"\n"));
    assert!(fields.ends_with("\"DowngradeEnabled\" : false\n\n"));
}

#[test]
fn empty_endpoint_status_prints_as_in_etcdctl() {
    assert_eq!(json(&Answer::Status(&[])), "null\n");
    assert_eq!(
        printed_as(Format::Table, false, &Answer::HashKv(&[])),
        "\
┌──────────┬──────┬───────────────┐
│ ENDPOINT │ HASH │ HASH REVISION │
└──────────┴──────┴───────────────┘
"
    );
}

#[test]
fn endpoint_health_prints_as_in_etcdctl() {
    let list = [
        EndpointHealth {
            endpoint: "a:1".to_owned(),
            took: Some(Duration::from_nanos(4_349_603)),
            error: None,
        },
        EndpointHealth {
            endpoint: "b:2".to_owned(),
            took: Some(Duration::from_secs(1)),
            error: Some("context deadline exceeded".to_owned()),
        },
    ];
    let answer = Answer::Health(&list);
    let printer = Printer {
        format: Format::Simple,
        hex: false,
        value_only: false,
    };
    let printed = printer.render(&answer).unwrap();
    assert_eq!(
        String::from_utf8(printed.out).unwrap(),
        "a:1 is healthy: successfully committed proposal: took = 4.349603ms\n"
    );
    assert_eq!(
        String::from_utf8(printed.err).unwrap(),
        "b:2 is unhealthy: failed to commit proposal: context deadline exceeded\n"
    );
    assert_eq!(
        json(&answer),
        concat!(
            r#"[{"endpoint":"a:1","health":true,"took":"4.349603ms"},"#,
            r#"{"endpoint":"b:2","health":false,"took":"1s","error":"context deadline exceeded"}]"#,
            "\n"
        )
    );
}

#[test]
fn alarms_print_as_in_etcdctl() {
    let response = AlarmResponse {
        header: header(8),
        alarms: vec![AlarmMember {
            member_id: MEMBER,
            alarm: AlarmType::Nospace.into(),
        }],
    };
    let answer = Answer::Alarms(&response);
    assert_eq!(
        simple(&answer),
        "memberID:3319814642761637952 alarm:NOSPACE\n"
    );
    assert!(json(&answer).ends_with(concat!(
        r#""alarms":[{"memberID":3319814642761637952,"alarm":1}]}"#,
        "\n"
    )));
    assert!(fields(&answer).ends_with("\"AlarmType\" : NOSPACE\n\n"));
}

#[test]
fn unsupported_format_is_refused() {
    let printer = Printer {
        format: Format::Table,
        hex: false,
        value_only: false,
    };
    let failure = printer
        .render(&Answer::Put(&PutResponse::default()))
        .unwrap_err();
    assert_eq!(
        failure.message.as_deref(),
        Some("table not supported as output format")
    );
    assert_eq!(failure.exit.code(), 4);
}
