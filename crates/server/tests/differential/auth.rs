//! The same random administration of users and roles, and the same requests of random users: the
//! same answers, refusals and revisions as etcd, and the same records in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use portunus_proto::authpb::User;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmType, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthStatusRequest,
    AuthUserAddRequest, AuthUserGrantRoleRequest, AuthenticateRequest, HashKvRequest,
    SnapshotRequest, alarm_request,
};
use portunus_testkit::program::Program;
use prost::Message;

use crate::administration::{Change, Other, PASSWORDS, USERS, change, other, send_change};
use crate::administration::{one_of, send_other};
use crate::common::random::Random;
use crate::common::{Clients, Server, connect, data_dir};
use crate::requests::{Credentials, Request, answer, clear, deletes, puts, request, send};
use crate::requests::{straighten, straighten_range};
use crate::{requests_wanted, start_etcd};

/// As fast as hashing can be, and tokens that outlive the test.
const FLAGS: [&str; 2] = ["--bcrypt-cost=4", "--auth-token-ttl=86400"];
/// From so many permissions on, Go's sort is not stable, and the order of permissions that start
/// at the same key is its own.
const PERMISSIONS_MAX: u32 = 12;
const SESSIONS_MAX: usize = 10;
/// Longest time that the NOSPACE alarm stays raised.
const ALARM_STEPS_MAX: u64 = 30;
/// A watch ends by a reset of its stream, and HTTP/2 allows a connection only so many of them.
const REQUESTS_PER_CONNECTION: u64 = 1000;
const ROOT: &str = "root";
const ROOT_PASSWORD: &str = "secret";

/// A login on both servers.
#[derive(Debug, Clone)]
struct Session {
    user: String,
    own: String,
    theirs: String,
    /// Whether the tokens should be accepted.
    is_valid: bool,
}

/// The sender of a request.
#[derive(Debug, Clone)]
enum Sender {
    Anonymous,
    /// A token that nobody was given.
    Unknown(&'static str),
    Session(Session),
}

impl Sender {
    /// The credentials for Portunus and for etcd.
    fn credentials(&self, key: &'static str) -> (Credentials, Credentials) {
        let with = |token: &str| Credentials {
            token: Some((key, token.to_owned())),
        };
        match self {
            Sender::Anonymous => (Credentials::default(), Credentials::default()),
            Sender::Unknown(token) => (with(token), with(token)),
            Sender::Session(session) => (with(&session.own), with(&session.theirs)),
        }
    }
}

/// A request of any kind.
#[derive(Debug, Clone)]
enum Step {
    Change(Change),
    Keys(Request),
    Other(Other),
    Login { user: String, password: String },
}

/// What the test knows about both servers.
struct Known {
    random: Random,
    newest: i64,
    is_enabled: bool,
    sessions: Vec<Session>,
    passwords: BTreeMap<String, String>,
    /// An upper bound of the permissions of each role.
    permissions: BTreeMap<String, u32>,
    alarm_since: Option<u64>,
    /// See the test without authentication.
    unsafe_to_compact: BTreeSet<i64>,
    is_compacted: bool,
}

impl Known {
    fn root(&self) -> Option<Session> {
        let mut sessions = self.sessions.iter().rev();
        let root = sessions.find(|session| session.is_valid && session.user == ROOT);
        root.cloned()
    }

    /// The sender that may do everything.
    fn administrator(&self) -> Sender {
        match self.root() {
            Some(root) if self.is_enabled => Sender::Session(root),
            _ => Sender::Anonymous,
        }
    }

    fn any_sender(&mut self) -> Sender {
        let unknown = [
            "",
            "abc",
            "abcdefghijklmnop.1",
            "a.b.c",
            "abcdefghijklmnop.-1",
            "Bearer abcdefghijklmnop.0",
        ];
        match self.random.below(20) {
            0..=2 => Sender::Anonymous,
            3 => Sender::Unknown(one_of(&mut self.random, &unknown)),
            _ if self.sessions.is_empty() => Sender::Anonymous,
            // Signed tokens are soon too old, so the newest is used most.
            4..=10 => Sender::Session(self.sessions[self.sessions.len() - 1].clone()),
            _ => {
                let count = self.sessions.len() as u64;
                let number = usize::try_from(self.random.below(count)).unwrap();
                Sender::Session(self.sessions[number].clone())
            }
        }
    }

    /// Returns the next step that makes the interesting states likely: authentication is enabled,
    /// and users are logged in.
    fn towards_users(&mut self, number: u64) -> Option<(Step, Sender)> {
        let password = || ROOT_PASSWORD.to_owned();
        let root = || ROOT.to_owned();
        if self
            .alarm_since
            .is_some_and(|since| number > since + ALARM_STEPS_MAX)
        {
            let disarm = AlarmRequest {
                action: alarm_request::AlarmAction::Deactivate.into(),
                member_id: 0,
                alarm: AlarmType::Nospace.into(),
            };
            return Some((Step::Other(Other::Alarm(disarm)), self.administrator()));
        }
        if self.is_enabled {
            if self.root().is_some() || self.random.below(3) > 0 {
                return None;
            }
            let login = Step::Login {
                user: root(),
                password: self.passwords.get(ROOT).cloned().unwrap_or_default(),
            };
            return Some((login, Sender::Anonymous));
        }
        if self.random.below(6) > 0 {
            return None;
        }
        let step = match self.random.below(4) {
            0 => Change::UserAdd(AuthUserAddRequest {
                name: root(),
                password: password(),
                ..AuthUserAddRequest::default()
            }),
            1 => Change::UserGrantRole(AuthUserGrantRoleRequest {
                user: root(),
                role: root(),
            }),
            2 => Change::RoleAdd(AuthRoleAddRequest { name: root() }),
            _ => Change::Enable,
        };
        Some((Step::Change(step), Sender::Anonymous))
    }

    fn next(&mut self, number: u64) -> (Step, Sender) {
        if let Some(step) = self.towards_users(number) {
            return step;
        }
        match self.random.below(20) {
            0..=6 => {
                let change = change(&mut self.random);
                let change = self.tamed(change);
                let sender = match self.random.below(10) {
                    0..=6 => self.administrator(),
                    _ => self.any_sender(),
                };
                (Step::Change(change), sender)
            }
            7..=8 => {
                let user = one_of(&mut self.random, USERS).to_owned();
                let password = match self.passwords.get(&user) {
                    Some(password) if self.random.below(4) > 0 => password.clone(),
                    _ => one_of(&mut self.random, PASSWORDS).to_owned(),
                };
                (Step::Login { user, password }, Sender::Anonymous)
            }
            9..=12 => {
                let mut other = other(&mut self.random, self.newest);
                if let Other::Watch(watch) = &mut other {
                    straighten_range(&watch.key, &mut watch.range_end);
                }
                (Step::Other(other), self.any_sender())
            }
            _ => {
                let mut request = request(&mut self.random, self.newest);
                straighten(&mut request);
                (Step::Keys(request), self.any_sender())
            }
        }
    }

    /// Replaces changes after which the servers could not be compared any more.
    fn tamed(&mut self, change: Change) -> Change {
        match change {
            // `root` must be able to log in, or nothing changes any more.
            Change::UserAdd(mut request) if request.name == ROOT => {
                request.options = None;
                request.password.truncate(72);
                Change::UserAdd(request)
            }
            Change::UserChangePassword(mut request) if request.name == ROOT => {
                request.hashed_password.clear();
                request.password = ROOT_PASSWORD.to_owned();
                Change::UserChangePassword(request)
            }
            Change::RoleGrantPermission(request) => {
                let count = self.permissions.get(&request.name).copied();
                match count.unwrap_or_default() < PERMISSIONS_MAX {
                    true => Change::RoleGrantPermission(request),
                    false => Change::RoleDelete(AuthRoleDeleteRequest { role: request.name }),
                }
            }
            other => other,
        }
    }

    /// Whether etcd survives a request, see the test without authentication.
    fn is_comparable(&self, step: &Step) -> bool {
        match step {
            Step::Keys(Request::Compact(it)) => {
                let is_first = it.revision == 0 && !self.is_compacted;
                !is_first && !self.unsafe_to_compact.contains(&it.revision)
            }
            _ => true,
        }
    }

    /// Takes note of a step and its answer.
    fn learn(&mut self, number: u64, step: &Step, answer: &str) {
        // The name of a response without header is shown as well.
        let is_ok = answer.split_once("Response {").is_some();
        if !is_ok {
            return;
        }
        match step {
            Step::Change(Change::UserAdd(request)) => {
                let has_none = request.options.is_some_and(|options| options.no_password);
                let password = (!has_none).then(|| request.password.clone());
                self.set_password(&request.name, password);
            }
            Step::Change(Change::UserDelete(request)) => self.set_password(&request.name, None),
            Step::Change(Change::UserChangePassword(request)) => {
                let password = match request.password.is_empty() {
                    true => ROOT_PASSWORD.to_owned(),
                    false => request.password.clone(),
                };
                self.set_password(&request.name, Some(password));
            }
            Step::Change(Change::Disable) => {
                for session in &mut self.sessions {
                    session.is_valid = false;
                }
            }
            Step::Change(Change::RoleGrantPermission(request)) => {
                *self.permissions.entry(request.name.clone()).or_default() += 1;
            }
            Step::Change(Change::RoleDelete(request)) => {
                self.permissions.remove(&request.role);
            }
            Step::Other(Other::Alarm(request)) => match request.action() {
                alarm_request::AlarmAction::Activate => self.alarm_since = Some(number),
                alarm_request::AlarmAction::Deactivate => self.alarm_since = None,
                alarm_request::AlarmAction::Get => {}
            },
            Step::Keys(Request::Compact(_)) => self.is_compacted = true,
            Step::Keys(Request::Txn(txn)) if deletes(txn) && puts(txn) => {
                self.unsafe_to_compact.insert(self.newest + 1);
            }
            _ => {}
        }
    }

    /// A user was added, has another password, or was deleted.
    fn set_password(&mut self, user: &str, password: Option<String>) {
        match password {
            Some(password) => self.passwords.insert(user.to_owned(), password),
            None => self.passwords.remove(user),
        };
        for session in &mut self.sessions {
            session.is_valid &= session.user != user;
        }
    }

    fn logged_in(&mut self, session: Session) {
        if self.sessions.len() == SESSIONS_MAX {
            let at = usize::try_from(self.random.below(SESSIONS_MAX as u64)).unwrap();
            self.sessions.remove(at);
        }
        self.sessions.push(session);
    }
}

/// Logs in; returns the answer without the token, and the token.
async fn log_in(clients: &mut Clients, name: &str, password: &str) -> (String, Option<String>) {
    let request = AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    let mut token = None;
    let answered = clients.auth.authenticate(request).await;
    let answer = answer(answered, |m| {
        clear(&mut m.header);
        token = Some(std::mem::take(&mut m.token));
    });
    (answer, token)
}

async fn send_step(clients: &mut Clients, step: Step, by: &Credentials) -> String {
    match step {
        Step::Change(change) => send_change(clients, change, by).await,
        Step::Keys(request) => send(clients, request, by).await,
        Step::Other(request) => send_other(clients, request, by).await,
        Step::Login { .. } => unreachable!("a login is sent to both servers by itself"),
    }
}

/// Returns the revision of the store, whether authentication is enabled, and its revision.
async fn status(clients: &mut Clients) -> (i64, bool, u64) {
    let status = clients.auth.auth_status(AuthStatusRequest {}).await;
    let status = status.unwrap().into_inner();
    let revision = status.header.unwrap().revision;
    (revision, status.enabled, status.auth_revision)
}

/// Returns the records of users and roles in a snapshot. Hashes of passwords have a random salt,
/// so only their form is returned.
async fn records(clients: &mut Clients, by: &Credentials) -> BTreeMap<String, Vec<u8>> {
    let request = by.sign(SnapshotRequest {});
    let pieces = clients.maintenance.snapshot(request).await;
    let mut pieces = pieces.unwrap().into_inner();
    let mut file = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        file.extend_from_slice(&piece.blob);
    }
    let reader = portunus_bolt::Reader::from_bytes(file.into()).unwrap();
    let mut records = BTreeMap::new();
    for name in ["auth", "authUsers", "authRoles"] {
        let bucket = reader.bucket(name.as_bytes()).unwrap().unwrap();
        for (key, value) in bucket.iter().map(Result::unwrap) {
            let key = format!("{name}/{}", String::from_utf8_lossy(key));
            let mut value = value.to_vec();
            if name == "authUsers" {
                value = without_salt(&value);
            }
            records.insert(key, value);
        }
    }
    records
}

/// Removes salt and hash of a bcrypt password from the record of a user.
fn without_salt(record: &[u8]) -> Vec<u8> {
    const VERSION_AND_COST: &[u8] = b"$2a$04$";
    const HASH_BYTES: usize = 60;
    let user = User::decode(record).unwrap();
    let hash = user.password;
    if hash.len() != HASH_BYTES || !hash.starts_with(VERSION_AND_COST) {
        return record.to_vec();
    }
    let at = record.windows(HASH_BYTES).position(|bytes| bytes == hash);
    let at = at.unwrap();
    let hash = at + VERSION_AND_COST.len()..at + HASH_BYTES;
    let mut record = record.to_vec();
    record[hash].fill(0);
    record
}

async fn compare(test: &str, program: Program, dir: &Path, flags: &[&str], requests: u64) {
    // etcd has no limit for failed logins and for requests without a user.
    let unlimited = ["--max-failed-logins=0", "--max-unauthenticated-requests=0"];
    let server = Server::start(dir, &[flags, &unlimited].concat());
    let mut own = server.connect().await;
    let etcd_dir = tempfile::tempdir().unwrap();
    let (etcd, mut theirs) = start_etcd(program, &etcd_dir, flags).await;
    let mut known = Known {
        // A fixed seed, as in the test without authentication.
        random: Random::seeded_or(test, 20_261_117),
        newest: 1,
        is_enabled: false,
        sessions: Vec::new(),
        passwords: BTreeMap::new(),
        permissions: BTreeMap::new(),
        alarm_since: None,
        unsafe_to_compact: BTreeSet::new(),
        is_compacted: false,
    };
    let mut permitted = 0_u64;
    for number in 0..requests {
        if number % REQUESTS_PER_CONNECTION == 0 {
            own = server.connect().await;
            theirs = connect(etcd.client).await;
        }
        let (step, sender) = known.next(number);
        if !known.is_comparable(&step) {
            continue;
        }
        let context = || format!("request {number} of {sender:?}: {step:#?}");
        let (ours, expected) = if let Step::Login { user, password } = &step {
            let ((ours, own_token), (expected, their_token)) = tokio::join!(
                log_in(&mut own, user, password),
                log_in(&mut theirs, user, password)
            );
            if let (Some(own), Some(theirs)) = (own_token, their_token) {
                known.logged_in(Session {
                    user: user.clone(),
                    own,
                    theirs,
                    is_valid: true,
                });
            }
            (ours, expected)
        } else {
            let key = match known.random.below(5) {
                0 => "authorization",
                _ => "token",
            };
            let (own_credentials, their_credentials) = sender.credentials(key);
            tokio::join!(
                send_step(&mut own, step.clone(), &own_credentials),
                send_step(&mut theirs, step.clone(), &their_credentials)
            )
        };
        assert_eq!(ours, expected, "{}", context());
        known.learn(number, &step, &ours);
        if known.is_enabled && matches!(step, Step::Keys(_)) && ours.contains("Response {") {
            permitted += 1;
        }
        let (ours, expected) = tokio::join!(status(&mut own), status(&mut theirs));
        assert_eq!(ours, expected, "status after {}", context());
        (known.newest, known.is_enabled, _) = ours;
        if number % 50 == 0 {
            compare_hashes(&mut own, &mut theirs, &known, &context()).await;
        }
    }
    // Enough requests got through that their answers were compared as well.
    assert!(permitted > requests / 50, "{permitted} of {requests}");
    compare_records(&mut own, &mut theirs, known).await;
}

async fn compare_hashes(own: &mut Clients, theirs: &mut Clients, known: &Known, context: &str) {
    let (own_root, their_root) = known.administrator().credentials("token");
    let request = || Other::HashKv(HashKvRequest { revision: 0 });
    let (ours, expected) = tokio::join!(
        send_other(own, request(), &own_root),
        send_other(theirs, request(), &their_root)
    );
    assert_eq!(ours, expected, "hash after {context}");
}

/// Compares the records of users and roles, as `root` if authentication is enabled.
async fn compare_records(own: &mut Clients, theirs: &mut Clients, mut known: Known) {
    if known.is_enabled && known.root().is_none() {
        let password = known.passwords.get(ROOT).cloned().unwrap_or_default();
        let (_, token) = log_in(own, ROOT, &password).await;
        let (_, their_token) = log_in(theirs, ROOT, &password).await;
        known.logged_in(Session {
            user: ROOT.to_owned(),
            own: token.unwrap(),
            theirs: their_token.unwrap(),
            is_valid: true,
        });
    }
    let (own_root, their_root) = known.administrator().credentials("token");
    compare_hashes(own, theirs, &known, "the last request").await;
    let ours = records(own, &own_root).await;
    assert_eq!(ours, records(theirs, &their_root).await);
    assert!(ours.len() > 3, "{ours:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_users_with_simple_tokens_are_answered_as_by_etcd() {
    const TEST: &str = "requests_of_users_with_simple_tokens_are_answered_as_by_etcd";
    let Some(program) = Program::etcd(TEST) else {
        return;
    };
    let (_guard, dir) = data_dir();
    compare(TEST, program, &dir, &FLAGS, requests_wanted()).await;
}

/// Signed tokens keep the revision of users and roles of their login, and belong to a user that
/// may have been deleted since.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_users_with_signed_tokens_are_answered_as_by_etcd() {
    const TEST: &str = "requests_of_users_with_signed_tokens_are_answered_as_by_etcd";
    let Some(program) = Program::etcd(TEST) else {
        return;
    };
    let (guard, dir) = data_dir();
    let key = guard.path().join("key");
    std::fs::write(&key, "a key that both servers have").unwrap();
    let tokens = format!(
        "--auth-token=jwt,priv-key={},sign-method=HS256,ttl=24h",
        key.display()
    );
    let flags = [FLAGS[0], FLAGS[1], &tokens];
    compare(TEST, program, &dir, &flags, requests_wanted() / 2).await;
}
