//! Watches against a real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};

use support::{Server, for_each_server, portctl};

/// A `portctl watch` whose lines can be read one by one.
struct Watch {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Watch {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut process = portctl()
            .env("PORTCTL_ENDPOINTS", server.endpoint())
            .arg("watch")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    fn say(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn watch_prints_events_in_order() {
    for_each_server("watching::watch_prints_events_in_order", |program| {
        let server = Server::start(program);
        server.portctl(["put", "w1", "x"]).ok();
        server.portctl(["put", "w1", "y"]).ok();
        server.portctl(["del", "w1"]).ok();
        let mut watch = Watch::start(&server, &["w", "--prefix", "--rev", "2", "--prev-kv"]);
        assert_eq!(watch.lines(3), ["PUT", "w1", "x"]);
        assert_eq!(watch.lines(5), ["PUT", "w1", "x", "w1", "y"]);
        assert_eq!(watch.lines(5), ["DELETE", "w1", "y", "w1", ""]);
        server.portctl(["put", "elsewhere", "1"]).ok();
        server.portctl(["put", "w2", "live"]).ok();
        assert_eq!(watch.lines(3), ["PUT", "w2", "live"]);
    });
}

#[test]
fn watch_runs_a_command_for_each_event() {
    for_each_server("watching::watch_runs_a_command_for_each_event", |program| {
        let server = Server::start(program);
        server.portctl(["put", "k", "q\"q"]).ok();
        let script = "echo $ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY; \
                  printf '%s\\n' \"$ETCD_WATCH_VALUE\"";
        let mut watch = Watch::start(&server, &["k", "--rev", "2", "--", "sh", "-c", script]);
        assert_eq!(watch.lines(3), ["PUT", "k", "q\"q"]);
        assert_eq!(watch.lines(2), ["2 \"PUT\" \"k\"", r#""q\"q""#]);

        let mut failing = Watch::start(&server, &["k", "--rev", "2", "--", "sh", "-c", "exit 7"]);
        assert_eq!(failing.process.wait().unwrap().code(), Some(1));
    });
}

#[test]
fn watch_of_compacted_revision_ends() {
    for_each_server("watching::watch_of_compacted_revision_ends", |program| {
        let server = Server::start(program);
        server.portctl(["put", "a", "1"]).ok();
        server.portctl(["put", "a", "2"]).ok();
        server.portctl(["compaction", "3"]).ok();
        let ended = server.portctl(["watch", "a", "--rev", "1"]);
        assert_eq!(ended.code, Some(5));
        assert_eq!(
            ended.err,
            "watch was canceled (etcdserver: mvcc: required revision has been compacted)\n\
         Error: watch is canceled by the server\n"
        );
    });
}

#[test]
fn interactive_watch_accepts_watches_and_progress_requests() {
    for_each_server("watching::interactive_mode", |program| {
        let server = Server::start(program);
        server.portctl(["put", "old", "1"]).ok();
        let mut watch = Watch::start(&server, &["-i"]);
        watch.say("watch old --rev 2");
        assert_eq!(watch.lines(3), ["PUT", "old", "1"]);
        watch.say("progress");
        assert_eq!(watch.line(), "progress notify: 2");
        watch.say("watch \"a key\" --rev 3 --prev-kv");
        server.portctl(["put", "a key", "v"]).ok();
        assert_eq!(watch.lines(3), ["PUT", "a key", "v"]);
    });
}

#[test]
fn watch_resumes_after_a_server_restart() {
    for_each_server("watching::a_watch_goes_on_where_it_was", |program| {
        let mut server = Server::start(program);
        let mut watch = Watch::start(&server, &["k", "--rev", "2"]);
        server.portctl(["put", "k", "before"]).ok();
        assert_eq!(watch.lines(3), ["PUT", "k", "before"]);
        server.restart();
        server.portctl(["put", "k", "after"]).ok();
        assert_eq!(watch.lines(3), ["PUT", "k", "after"]);
    });
}
