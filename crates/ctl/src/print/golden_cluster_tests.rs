//! Texts about changes of a cluster, taken from what etcdctl 3.7.1 prints.

use portunus_proto::etcdserverpb::{
    DowngradeResponse, Member, MemberAddResponse, MemberRemoveResponse, MoveLeaderResponse,
    ResponseHeader,
};

use super::{Answer, Format, Printer};
use crate::outcome::Failure;

fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: 0xcdef,
        member_id: 1,
        revision: 0,
        raft_term: 2,
    })
}

fn printed(format: Format, hex: bool, answer: &Answer<'_>) -> Result<String, Failure> {
    let printer = Printer {
        format,
        hex,
        value_only: false,
    };
    let printed = printer.render(answer)?;
    Ok(String::from_utf8(printed.out).unwrap())
}

fn simple(answer: &Answer<'_>) -> String {
    printed(Format::Simple, false, answer).unwrap()
}

fn learner_added() -> MemberAddResponse {
    let old = Member {
        id: 1,
        name: "m1".to_owned(),
        peer_urls: vec!["http://a:1".to_owned(), "http://a:2".to_owned()],
        ..Member::default()
    };
    let new = Member {
        id: 0xab,
        peer_urls: vec!["http://b:1".to_owned()],
        is_learner: true,
        ..Member::default()
    };
    MemberAddResponse {
        header: header(),
        member: Some(new.clone()),
        members: vec![old, new],
    }
}

#[test]
fn member_add_prints_the_settings_of_the_new_member() {
    let response = &learner_added();
    let answer = Answer::MemberAdd {
        response,
        name: "m2",
        peer_urls: "http://b:1",
    };
    assert_eq!(
        simple(&answer),
        r#"Member               ab added as learner to cluster             cdef

ETCD_NAME="m2"
ETCD_INITIAL_CLUSTER="m1=http://a:1,m1=http://a:2,m2=http://b:1"
ETCD_INITIAL_ADVERTISE_PEER_URLS="http://b:1"
ETCD_INITIAL_CLUSTER_STATE="existing"
"#
    );
    assert_eq!(
        printed(Format::Json, true, &answer).unwrap(),
        concat!(
            r#"{"header":{"cluster_id":"cdef","member_id":"1","raft_term":2},"#,
            r#""member":{"ID":"ab","peerURLs":["http://b:1"],"isLearner":true},"#,
            r#""members":[{"ID":"1","name":"m1","peerURLs":["http://a:1","http://a:2"]},"#,
            r#"{"ID":"ab","peerURLs":["http://b:1"],"isLearner":true}]}"#,
            "\n"
        )
    );
}

#[test]
fn membership_changes_print_one_line() {
    let removed = MemberRemoveResponse {
        header: header(),
        members: Vec::new(),
    };
    assert_eq!(
        simple(&Answer::MemberRemove(0xab, &removed)),
        "Member               ab removed from cluster             cdef\n"
    );
    let moved = Answer::MoveLeader {
        from: 0xab,
        to: 0xcd,
        response: &MoveLeaderResponse::default(),
    };
    assert_eq!(simple(&moved), "Leadership transferred from ab to cd\n");
    let validated = Answer::Downgrade {
        did: "validate",
        response: &DowngradeResponse {
            version: "3.7".to_owned(),
            ..DowngradeResponse::default()
        },
    };
    assert_eq!(
        simple(&validated),
        "Downgrade validate success, cluster version 3.7\n"
    );
}

#[test]
fn membership_changes_support_neither_fields_nor_table() {
    let removed = MemberRemoveResponse::default();
    for (format, name) in [(Format::Fields, "fields"), (Format::Table, "table")] {
        let failure = printed(format, false, &Answer::MemberRemove(1, &removed)).unwrap_err();
        let expected = format!("{name} not supported as output format");
        assert_eq!(failure.message, Some(expected));
        assert_eq!(failure.exit.code(), 4);
    }
}
