//! Whole texts about users and roles, taken from what etcdctl 3.7.1 prints.

use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthRoleGetResponse, AuthRoleListResponse, AuthRoleRevokePermissionResponse,
    AuthStatusResponse, AuthUserGetResponse, AuthUserListResponse, ResponseHeader,
};

use super::{Answer, AuthAnswer, Format, Printer};
use crate::outcome::ExitWith;

fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: 7,
        member_id: 9,
        revision: 3,
        raft_term: 2,
    })
}

fn printed_as(format: Format, answer: AuthAnswer<'_>) -> String {
    let printer = Printer {
        format,
        hex: false,
        value_only: false,
    };
    let printed = printer.render(&Answer::Auth(answer)).unwrap();
    String::from_utf8(printed.out).unwrap()
}

fn role() -> AuthRoleGetResponse {
    let permission = |kind: Type, key: &str, end: &str| Permission {
        perm_type: kind.into(),
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
    };
    AuthRoleGetResponse {
        header: header(),
        perm: vec![
            permission(Type::Read, "k", ""),
            permission(Type::Readwrite, "p/", "p0"),
            permission(Type::Write, "a", "c"),
            permission(Type::Write, "x", "\0"),
        ],
    }
}

#[test]
fn role_prints_as_in_etcdctl() {
    let role = role();
    let answer = AuthAnswer::RoleGet("r", &role);
    assert_eq!(
        printed_as(Format::Simple, answer),
        "Role r\n\
         KV Read:\n\tk\n\t[p/, p0) (prefix p/)\n\
         KV Write:\n\t[p/, p0) (prefix p/)\n\t[a, c)\n\t[x, <open ended>\n"
    );
    assert_eq!(
        printed_as(Format::Json, answer),
        concat!(
            r#"{"header":{"cluster_id":7,"member_id":9,"revision":3,"raft_term":2},"#,
            r#""perm":[{"key":"aw=="},{"permType":2,"key":"cC8=","range_end":"cDA="},"#,
            r#"{"permType":1,"key":"YQ==","range_end":"Yw=="},"#,
            r#"{"permType":1,"key":"eA==","range_end":"AA=="}]}"#,
            "\n"
        )
    );
    let fields = printed_as(Format::Fields, answer);
    let first = "\"RaftTerm\" : 2\n\"PermType\" :  READ\n\"Key\" : \"k\"\n\"RangeEnd\" : \"\"\n";
    assert!(fields.contains(first), "{fields}");
    assert!(fields.ends_with("\"RangeEnd\" : \"\\x00\"\n"), "{fields}");
}

#[test]
fn role_root_without_permissions_covers_every_key() {
    let bare = AuthRoleGetResponse {
        header: header(),
        perm: Vec::new(),
    };
    assert_eq!(
        printed_as(Format::Simple, AuthAnswer::RoleGet("root", &bare)),
        "Role root\nKV Read:\n\t[, <open ended>\nKV Write:\n\t[, <open ended>\n"
    );
    assert_eq!(
        printed_as(Format::Simple, AuthAnswer::RoleGet("other", &bare)),
        "Role other\nKV Read:\nKV Write:\n"
    );
}

#[test]
fn lists_and_status_print_as_in_etcdctl() {
    let user = AuthUserGetResponse {
        header: header(),
        roles: vec!["a".to_owned(), "b".to_owned()],
    };
    let answer = AuthAnswer::UserGet("u", &user);
    assert_eq!(printed_as(Format::Simple, answer), "User: u\nRoles: a b\n");
    let users = AuthUserListResponse {
        header: header(),
        users: vec!["u<1>".to_owned()],
    };
    let json = printed_as(Format::Json, AuthAnswer::UserList(&users));
    assert!(
        json.ends_with("},\"users\":[\"u\\u003c1\\u003e\"]}\n"),
        "{json}"
    );
    let roles = AuthRoleListResponse {
        header: header(),
        roles: vec!["a".to_owned(), "b".to_owned()],
    };
    let answer = AuthAnswer::RoleList(&roles);
    assert_eq!(printed_as(Format::Simple, answer), "a\nb\n");
    let fields = printed_as(Format::Fields, answer);
    assert!(fields.ends_with("\"Roles\" : \"a\" \"b\"\n"), "{fields}");
    let status = AuthStatusResponse {
        header: header(),
        enabled: true,
        auth_revision: 12,
    };
    assert_eq!(
        printed_as(Format::Simple, AuthAnswer::Status(&status)),
        "Authentication Status: true\nAuthRevision: 12\n"
    );
}

#[test]
fn revoked_permission_is_named_by_its_range() {
    let response = &AuthRoleRevokePermissionResponse { header: header() };
    for (range_end, text) in [
        (&b""[..], "Permission of key k is revoked from role r\n"),
        (b"l", "Permission of range [k, l) is revoked from role r\n"),
        (
            b"\0",
            "Permission of range [k, <open ended> is revoked from role r\n",
        ),
    ] {
        let answer = AuthAnswer::RoleRevokePermission {
            role: "r",
            key: b"k",
            range_end,
            response,
        };
        assert_eq!(printed_as(Format::Simple, answer), text);
    }
}

#[test]
fn formats_that_etcdctl_lacks_are_refused() {
    let status = AuthStatusResponse::default();
    let (user, users) = (
        AuthUserGetResponse::default(),
        AuthUserListResponse::default(),
    );
    for (format, answer) in [
        (Format::Fields, AuthAnswer::Status(&status)),
        (Format::Fields, AuthAnswer::UserGet("u", &user)),
        (Format::Fields, AuthAnswer::UserList(&users)),
        (Format::Table, AuthAnswer::UserList(&users)),
    ] {
        let printer = Printer {
            format,
            hex: false,
            value_only: false,
        };
        let refused = printer.render(&Answer::Auth(answer)).unwrap_err();
        assert_eq!(refused.exit, ExitWith::BadFeature);
    }
}
