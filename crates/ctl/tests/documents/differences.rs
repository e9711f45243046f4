//! What differs from etcdctl and etcdutl, and why.

/// A difference that remains, and its reason.
pub struct Difference {
    /// The commands or flags.
    pub of: &'static str,
    /// What `portctl` does instead.
    pub what: &'static str,
    /// Why.
    pub why: &'static str,
}

/// Flags of etcdctl that `portctl` refuses with exit code 4.
pub const REFUSED_FLAGS: [&str; 3] = ["discovery-srv", "discovery-srv-name", "insecure-discovery"];

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        of: "`--discovery-srv`, `--discovery-srv-name`, `--insecure-discovery=false`",
        what: "refused with exit code 4, also as environment variables",
        why: "`portctl` does not query DNS for SRV records; a command that silently used other endpoints would be worse. List the `--endpoints`",
    },
    Difference {
        of: "a command line that cannot be parsed, and `--help`",
        what: "exit code 1 as etcdctl, with other texts: the error names similar commands and flags, the help ends with examples",
        why: "the texts are those of another parser; scripts read the exit code",
    },
    Difference {
        of: "log lines on standard error (`{\"level\":\"warn\",…}` of etcdctl, the log of etcdutl)",
        what: "not written; `--debug` prints the settings in force",
        why: "the error that follows has the same content",
    },
    Difference {
        of: "a command that times out",
        what: "before etcdctl's line, the state of each endpoint and the next step are printed to standard error",
        why: "`context deadline exceeded` alone does not tell an unreachable member from a cluster without a leader",
    },
    Difference {
        of: "a flag whose environment variable is set, too",
        what: "the flag has precedence",
        why: "etcdctl refuses the command; a variable for the shell and a flag for one command are useful together",
    },
    Difference {
        of: "errors at a terminal",
        what: "a second line has the next step",
        why: "scripts read the same bytes as from etcdctl",
    },
    Difference {
        of: "`--keepalive-time`",
        what: "at least 10s",
        why: "servers close connections that are pinged more often; Go's client has the same minimum",
    },
    Difference {
        of: "`version`",
        what: "prints `portctl version:`, and the API version 3.8",
        why: "it is another program; both lines have etcdctl's form",
    },
    Difference {
        of: "progress of `check`, `snapshot save`, `snapshot restore`, `defrag`, `make-mirror`, `migrate`",
        what: "one line on standard error, only on a terminal; etcdctl draws its bars also into files",
        why: "output in files has no control characters",
    },
    Difference {
        of: "`check perf`, `check datascale`",
        what: "an interrupt deletes the keys of the check and ends with exit code 5",
        why: "etcdctl leaves the keys of `check datascale` behind, and the next check is refused",
    },
    Difference {
        of: "`check datascale` with `https` endpoints",
        what: "verifies the server with `--cacert` and needs no client certificate",
        why: "etcdctl reads the metrics without `--cacert` and requires a certificate",
    },
    Difference {
        of: "`make-mirror --rev=N --prefix=P` without `--dest-prefix`",
        what: "keeps the prefix at the destination, as without `--rev`",
        why: "etcdctl 3.7 writes the keys without their prefix in this case only, against its own help",
    },
    Difference {
        of: "`make-mirror`, first copy",
        what: "up to 64 writes are in flight",
        why: "the keys are distinct, so the result is the same, sooner",
    },
    Difference {
        of: "`make-mirror` that fails after its first copy",
        what: "the line before the error has the `--rev` with which to continue",
        why: "etcdctl's mirror starts again with a copy of all keys",
    },
    Difference {
        of: "`lock`, `elect`",
        what: "end the lease of the session when they end in good order",
        why: "etcdctl leaves the lease until its TTL is over; the lock is free at the same moment in both",
    },
    Difference {
        of: "`lock NAME COMMAND`",
        what: "sets `ETCD_LOCK_KEY` and `ETCD_LOCK_REV` also if they were set before, and prints a line to standard error when the lock is lost while the command runs",
        why: "the command of a lock inside of another one needs the key of its own lock",
    },
    Difference {
        of: "`defrag`, `hashkv`, `migrate` on data directories",
        what: "`defrag --data-dir` and `hashkv` take directories of etcd and of Portunus, `migrate` those of Portunus only",
        why: "a directory of etcd is migrated when Portunus takes it over; before that, etcdutl migrates it",
    },
    Difference {
        of: "`hashkv` of a file",
        what: "does not change the file",
        why: "etcdutl opens the file for writing: a snapshot that it has hashed does not have its checksum any more, and is restored only with `--skip-hash-check`",
    },
    Difference {
        of: "`snapshot restore`, `defrag --data-dir`, `migrate`",
        what: "one line about the result; `--initial-memory-map-size` has no effect",
        why: "etcdutl logs steps of its own implementation; nothing is mapped into memory here",
    },
    Difference {
        of: "`completion`",
        what: "scripts of another generator, and one more shell (elvish)",
        why: "they are made from the definitions of the commands of `portctl`",
    },
    Difference {
        of: "shortened commands, such as `portctl ge a`",
        what: "accepted while they are unique",
        why: "an extension; a script of etcdctl has none",
    },
];
