//! Examples of every command, shown at the end of its help and in `docs/portctl.md`.

/// What an example does, and its command line.
pub type Example = (&'static str, &'static str);

/// Returns the examples of the command with this path, such as `lease grant`.
#[must_use]
pub fn of(path: &str) -> Vec<Example> {
    let command = format!("portctl {path}");
    let is_of_command = |line: &str| {
        let rest = line.strip_prefix(&command);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    EXAMPLES
        .split("# ")
        .filter_map(|example| example.trim_end().split_once('\n'))
        .filter(|(_, line)| is_of_command(line))
        .collect()
}

/// Pairs of lines: what the example does, and its command line.
const EXAMPLES: &str = r#"
# The value of one key, without the key
portctl get config/mode --print-value-only
# All keys with a prefix, as JSON
portctl get config/ --prefix -w json
# A key as it was at revision 5
portctl get config/mode --rev=5
# Why an API is served, and what would change that
portctl api explain olmconfigs.v2alpha1.operators.coreos.com
# What emulating an earlier release would change
portctl api plan --to-emulated-version=1.36
# Write a key
portctl put config/mode fast
# Write a value that begins with a hyphen
portctl put offset -- -5
# Attach the key to a lease
portctl put worker/7 alive --lease=694d5765fc71500b
# Delete one key and show its last value
portctl del config/mode --prev-kv
# Delete every key with a prefix
portctl del config/ --prefix
# Enter compares and requests step by step
portctl txn --interactive
# Remove the history before revision 1000 and wait until it is gone
portctl compaction 1000 --physical
# Print every change below a prefix, with the values before
portctl watch config/ --prefix --prev-kv
# Run a command for every change
portctl watch config/mode -- sh -c 'echo $ETCD_WATCH_VALUE'
# A lease of 60 seconds
portctl lease grant 60
# Revoke a lease and delete its keys
portctl lease revoke 694d5765fc71500b
# The time left, and the attached keys
portctl lease timetolive 694d5765fc71500b --keys
# All leases
portctl lease list
# Renew a lease until it is revoked
portctl lease keep-alive 694d5765fc71500b
# Renew it once
portctl lease keep-alive --once 694d5765fc71500b
# The members as a table
portctl member list -w table
# Announce a new member before it starts
portctl member add m4 --peer-urls=https://10.0.0.4:2380
# Add it without a vote first
portctl member add m4 --peer-urls=https://10.0.0.4:2380 --learner
# Remove a member by its id
portctl member remove 8e9e05c52164694d
# Change the peer URL of a member
portctl member update 8e9e05c52164694d --peer-urls=https://10.0.0.5:2380
# Give a learner its vote
portctl member promote 8e9e05c52164694d
# Move the leadership; --endpoints includes the leader
portctl move-leader 8e9e05c52164694d
# Check whether the cluster can be downgraded
portctl downgrade validate 3.6
# Allow members of the version before
portctl downgrade enable 3.6
# End a downgrade that has not finished
portctl downgrade cancel
# The downgrade in progress, if any
portctl downgrade status
# Whether every member commits
portctl endpoint health --cluster
# Leader, term and database size of every member
portctl endpoint status --cluster -w table
# Compare the history of all members up to a revision
portctl endpoint hashkv --cluster --rev=1000
# Whether a feature is on in the cluster
portctl endpoint featuregate WatchPermissionRecheck
# All features with their values
portctl gate list -w table
# The value of one feature
portctl gate status WatchPermissionRecheck
# Why a feature has its value
portctl gate explain WatchPermissionRecheck
# What an upgrade of all members would change
portctl gate plan upgrade 3.8
# What a downgrade would change
portctl gate plan downgrade 3.7
# What the end of a downgrade would change
portctl gate plan cancel
# What a new voting member would change
portctl gate plan promote m4
# What a new member with a flag would change
portctl gate plan add --cluster-feature-gates=WatchPermissionRecheck=false
# What the removal of a member would change
portctl gate plan remove m3
# What a restart of a member would change
portctl gate plan restart m1
# All decisions about features
portctl gate history
# Print new decisions as they are made
portctl gate watch
# The raised alarms
portctl alarm list
# Clear all alarms, after their cause is gone
portctl alarm disarm
# Release the unused space of every member
portctl defrag --cluster
# Release that of a stopped member
portctl defrag --data-dir=/var/lib/portunus
# Save the data of one member
portctl snapshot save backup.db --endpoints=10.0.0.1:2379
# Hash, revision, keys and size of a snapshot
portctl snapshot status backup.db -w table
# Make the data directory of a new cluster of one member
portctl snapshot restore backup.db --data-dir=/var/lib/portunus
# Hash a snapshot up to a revision
portctl hashkv backup.db --rev=1000
# Prepare a stopped member for version 3.6
portctl migrate --data-dir=/var/lib/portunus --target-version=3.6
# Require users, after the user root exists
portctl auth enable
# Require no users
portctl auth disable --user=root
# Whether users are required
portctl auth status
# Add a user; the password is asked for
portctl user add alice
# Add a user for a client certificate
portctl user add alice --no-password
# Delete a user
portctl user delete alice
# The roles of a user with their permissions
portctl user get alice --detail
# All users
portctl user list
# Change a password; it is asked for
portctl user passwd alice
# Give a user a role
portctl user grant-role alice reader
# Take a role away
portctl user revoke-role alice reader
# Add a role
portctl role add reader
# Delete a role
portctl role delete reader
# The permissions of a role
portctl role get reader
# All roles
portctl role list
# Allow a role to read a prefix
portctl role grant-permission reader read config/ --prefix
# Take that permission away
portctl role revoke-permission reader config/ --prefix
# Hold a lock until the program is interrupted
portctl lock backup
# Run a command under a lock and return its exit code
portctl lock backup --ttl=30 -- ./backup.sh --full
# Take part in an election until the program is interrupted
portctl elect scheduler host-1
# Print every new leader
portctl elect --listen scheduler
# Mirror all keys to another cluster
portctl make-mirror 10.0.1.1:2379
# Mirror a prefix under another name
portctl make-mirror 10.0.1.1:2379 --prefix=config/ --dest-prefix=mirror/
# Whether the cluster carries 1,000 writes a second
portctl check perf --load=m --auto-compact --auto-defrag
# The memory of a server for 10,000 keys
portctl check datascale --load=s --endpoints=10.0.0.1:2379
# Whether a store keeps the rules of kube-apiserver
portctl check kubernetes --keep-history
# The flags that every command has
portctl options
# The version, without a server
portctl version
# Load the completions of bash for every session
portctl completion bash > /etc/bash_completion.d/portctl
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_a_command_are_found_by_its_whole_path() {
        let lines: Vec<&str> = of("lease list").into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["portctl lease list"]);
        assert!(
            of("lease")
                .iter()
                .all(|(_, line)| line.starts_with("portctl lease "))
        );
        assert_eq!(of("leas"), []);
    }

    /// No example is lost because its line has another form.
    #[test]
    fn every_line_is_part_of_an_example() {
        for (number, line) in EXAMPLES.trim().lines().enumerate() {
            let expected = ["# ", "portctl "][number % 2];
            assert!(line.starts_with(expected), "{line}");
            assert_eq!(line.matches("# ").count(), (number + 1) % 2, "{line}");
        }
    }
}
