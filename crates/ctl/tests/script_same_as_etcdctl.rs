//! One shell script, run with `portctl` and with etcdctl and etcdutl, on two servers with the same
//! ids: after every line, exit code, standard output and error must be the same bytes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use portunus_testkit::program::{Kind, Program};
use support::{Ran, Server, clean, etcdctl, etcdutl, for_each_server, run};

/// The lines. `$CTL` is `portctl` or etcdctl, `$UTL` is `portctl` or etcdutl, `$ENDPOINT` and
/// `$LOWER` are the server's endpoint and the version before its own. What is random or a time is cut
/// off by the line itself.
const SCRIPT: &str = r##"
$CTL put greeting hello
$CTL put greeting 'hello, world' --prev-kv
printf 'two\nlines' | $CTL put text
$CTL put -- -dash -1
$CTL get greeting
$CTL get greeting --print-value-only
$CTL get '' --prefix --keys-only --order=descend
$CTL get '' --prefix --count-only -w fields
$CTL get greeting -w json --hex
$CTL get g h --stream
$CTL get '' --from-key --limit=2 -w fields
$CTL get nothing; echo "exit code $?"
$CTL get greeting --rev=99; echo "exit code $?"
$CTL del text
$CTL del -- -dash
printf 'val("greeting") = "hello, world"\n\nput greeting again\nget greeting\n\nget nothing\n\n' | $CTL txn
printf 'ver("greeting") > "90"\n\n\nput other 1\n\n' | $CTL txn -w json
printf 'nonsense\n' | $CTL txn; echo "exit code $?"
timeout 3 $CTL watch greeting --rev=2 --prev-kv
timeout 3 $CTL watch g --prefix --rev=2 -w json
timeout 3 $CTL watch greeting --rev=2 -- sh -c 'echo $ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE'
(printf 'watch greeting --rev=2\n'; sleep 3) | $CTL watch -i; echo "exit code $?"
$CTL endpoint hashkv
$CTL lease grant 6000 | tee granted
cut -d' ' -f2 granted > lease; wc -c < lease
$CTL put leased 1 --lease=$(cat lease)
$CTL lease timetolive $(cat lease) --keys | sed 's/remaining([0-9]*s)//'
$CTL lease list
$CTL lease keep-alive --once $(cat lease)
$CTL lease revoke $(cat lease)
$CTL get leased
$CTL lease revoke $(cat lease); echo "exit code $?"
$CTL lease timetolive 77
$CTL lease grant zero; echo "exit code $?"
$CTL compaction 3
$CTL compaction 3; echo "exit code $?"
$CTL get greeting --rev=2; echo "exit code $?"
$CTL watch greeting --rev=2; echo "exit code $?"
$CTL member list
$CTL member list -w table
$CTL member remove abc; echo "exit code $?"
$CTL member update $($CTL member list | cut -d, -f1); echo "exit code $?"
$CTL endpoint health | sed 's/took.*//'
$CTL endpoint status -w table | wc -l
$CTL alarm list
$CTL alarm disarm -w json
$CTL move-leader $($CTL member list | cut -d, -f1)
$CTL move-leader 1; echo "exit code $?"
$CTL defrag | sed 's/took.*//'
$CTL downgrade validate $LOWER
$CTL downgrade validate 2.0; echo "exit code $?"
$CTL downgrade cancel; echo "exit code $?"
$CTL snapshot save saved.db
$CTL snapshot save; echo "exit code $?"
ls saved.db*
$UTL snapshot status saved.db | cut -d, -f2,3,5
cp saved.db copy.db; $UTL hashkv copy.db --rev=5
$UTL hashkv missing.db; echo "exit code $?"
$UTL snapshot restore saved.db --data-dir=restored 2>/dev/null; echo "exit code $?"
ls restored/member restored/member/snap
$UTL snapshot restore saved.db --data-dir=restored 2>/dev/null; echo "exit code $?"
$UTL defrag --data-dir=restored 2>/dev/null; echo "exit code $?"
$UTL migrate --data-dir=missing --target-version=3; echo "exit code $?"
$CTL role add reader
$CTL role grant-permission reader read greeting
$CTL role get reader
$CTL user add alice:secret
$CTL user grant-role alice reader
$CTL user get alice --detail
$CTL user add alice:secret; echo "exit code $?"
$CTL user delete alice
$CTL role list
$CTL auth status
$CTL auth enable; echo "exit code $?"
$CTL lock mutex -- sh -c 'echo $ETCD_LOCK_REV; exit 3'; echo "exit code $?"
$CTL lock mutex no-such-program; echo "exit code $?"
timeout -s INT 3 $CTL lock mutex -w fields | sed 's#mutex/[0-9a-f]*#mutex/LEASE#; s#"Lease" : .*#"Lease"#'
timeout -s INT 3 $CTL elect boss me | sed 's#boss/[0-9a-f]*#boss/LEASE#'
$CTL elect boss; echo "exit code $?"
timeout 3 $CTL make-mirror $ENDPOINT --prefix=greet --dest-prefix=copy/ ; echo "exit code $?"
$CTL get copy/ --prefix
$CTL make-mirror; echo "exit code $?"
$CTL check datascale 2>/dev/null | sed 's/used : .*//'
$CTL check datascale --load=huge; echo "exit code $?"
$CTL check perf --load=huge; echo "exit code $?"
$CTL get '' --prefix --keys-only
$CTL options > /dev/null; echo "exit code $?"
$CTL version | cut -d' ' -f2
$CTL completion bash > /dev/null; echo "exit code $?"
$CTL completion tcsh 2> /dev/null; echo "exit code $?"
$CTL help > /dev/null; echo "exit code $?"
$CTL get --help > /dev/null; echo "exit code $?"
$CTL frobnicate 2> /dev/null; echo "exit code $?"
$CTL get a --frobnicate 2> /dev/null; echo "exit code $?"
$CTL get a -w yaml; echo "exit code $?"
"##;

/// One of the two runs.
struct Runner<'r> {
    server: &'r Server,
    ctl: &'r OsStr,
    utl: &'r OsStr,
    lower: &'static str,
}

impl Runner<'_> {
    fn run(&self, line: &str) -> Ran {
        let dir = self.server.path("work");
        fs::create_dir_all(&dir).unwrap();
        let mut shell = clean(Command::new("sh"));
        shell
            .args(["-c", line])
            .current_dir(&dir)
            .env("CTL", self.ctl)
            .env("UTL", self.utl)
            .env("ENDPOINT", self.server.endpoint())
            .env("LOWER", self.lower)
            .env("ETCDCTL_ENDPOINTS", self.server.endpoint());
        let mut ran = run(&mut shell, b"");
        let lease = fs::read_to_string(dir.join("lease")).unwrap_or_default();
        for text in [&mut ran.out, &mut ran.err] {
            *text = text.replace(&self.server.endpoint(), "<endpoint>");
            if !lease.trim().is_empty() {
                *text = text.replace(lease.trim(), "<lease>");
            }
        }
        // The random lease of the line that grants it.
        if line.contains("lease grant 6000") {
            ran.out = ran.out.split(' ').skip(2).collect::<Vec<_>>().join(" ");
        }
        let lines = ran.err.split_inclusive('\n');
        ran.err = lines
            .filter(|line| !line.starts_with("{\"level\""))
            .collect();
        ran
    }
}

#[test]
fn script_of_etcdctl_runs_with_only_the_name_changed() {
    const TEST: &str = "script_same_as_etcdctl::script_of_etcdctl_runs_with_only_the_name_changed";
    let (Some(etcdctl), Some(etcdutl)) = (etcdctl(TEST), etcdutl(TEST)) else {
        return;
    };
    for_each_server(TEST, |program: &Program| {
        let portctl = OsStr::new(env!("CARGO_BIN_EXE_portctl"));
        let lower = match program.kind {
            Kind::Portunus => "3.7",
            Kind::Etcd => "3.6",
        };
        let [ours, theirs] = Server::start_twins(program);
        let runner = |server, ctl, utl| Runner {
            server,
            ctl,
            utl,
            lower,
        };
        let ours = runner(&ours, portctl, portctl);
        let theirs = runner(&theirs, etcdctl.as_os_str(), etcdutl.as_os_str());
        let lines: Vec<&str> = SCRIPT.lines().filter(|line| !line.is_empty()).collect();
        let mut differences = Vec::new();
        for line in lines {
            let (ours, theirs) = std::thread::scope(|scope| {
                let theirs = scope.spawn(|| theirs.run(line));
                (ours.run(line), theirs.join().unwrap())
            });
            if ours != theirs {
                differences.push(format!("{line}\n  portctl {ours:?}\n  etcdctl {theirs:?}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}
