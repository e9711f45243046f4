//! Limits of callers that are not known, or not yet: requests without a valid identity, and failed
//! logins. Both are counted per address, so that no client can lock another address out.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use prometheus::IntCounter;

use super::address_block::AddressBlock;
use super::rate_limit::{RateLimit, RateLimitOptions};
use crate::config::ClientLimits;
use crate::log_throttle::LogThrottle;
use crate::metrics::LimitMetrics;

/// Addresses, or pairs of users and addresses, that are told apart.
const KEYS_MAX: usize = 16 * 1024;
/// Failed logins per second in the long run.
pub const FAILED_LOGINS_PER_SECOND: u32 = 1;

/// The address of a client, in the extensions of its requests while authentication is enabled.
#[derive(Debug, Clone, Copy)]
pub struct ClientAddress(pub AddressBlock);

/// The limits, and what they refused.
pub struct CallerLimits {
    unauthenticated: Option<RateLimit<AddressBlock>>,
    /// By the hash of the user name: names have no limit.
    failed_logins: Option<RateLimit<(u64, AddressBlock)>>,
    names: RandomState,
    started: Instant,
    refused_unauthenticated: IntCounter,
    refused_logins: IntCounter,
    failures: IntCounter,
    log: LogThrottle,
}

impl CallerLimits {
    /// Creates the limits of a configuration.
    pub fn new(limits: &ClientLimits, metrics: &LimitMetrics) -> CallerLimits {
        let per_second = limits.unauthenticated_requests_max;
        let options = |per_second, burst| RateLimitOptions {
            per_second,
            burst,
            keys_max: KEYS_MAX,
        };
        let burst = limits.failed_logins_max;
        CallerLimits {
            unauthenticated: (per_second > 0)
                .then(|| RateLimit::new(options(per_second, per_second))),
            failed_logins: (burst > 0)
                .then(|| RateLimit::new(options(FAILED_LOGINS_PER_SECOND, burst))),
            names: RandomState::new(),
            started: Instant::now(),
            refused_unauthenticated: metrics.refused_unauthenticated.clone(),
            refused_logins: metrics.refused_failed_logins.clone(),
            failures: metrics.failed_logins.clone(),
            log: LogThrottle::default(),
        }
    }

    /// Counts a request without a valid identity; false if there are too many from its address.
    pub fn allow_unauthenticated(&self, from: Option<ClientAddress>) -> bool {
        let (Some(limit), Some(ClientAddress(address))) = (&self.unauthenticated, from) else {
            return true;
        };
        let is_allowed = limit.allow(address, self.now());
        if !is_allowed {
            self.refused_unauthenticated.inc();
        }
        is_allowed
    }

    /// Whether a user may try to log in from an address.
    pub fn allow_login(&self, user: &str, from: Option<ClientAddress>) -> bool {
        let (Some(limit), Some(ClientAddress(address))) = (&self.failed_logins, from) else {
            return true;
        };
        let key = (self.names.hash_one(user), address);
        let is_allowed = !limit.is_exhausted(&key, self.now());
        if !is_allowed {
            self.refused_logins.inc();
        }
        is_allowed
    }

    /// Counts and logs a login with a wrong password or user.
    pub fn login_failed(&self, user: &str, from: Option<ClientAddress>) {
        self.failures.inc();
        if let (Some(limit), Some(ClientAddress(address))) = (&self.failed_logins, from) {
            let key = (self.names.hash_one(user), address);
            // The next attempt is refused if this took the last token.
            let _ = limit.allow(key, self.now());
        }
        if let Some(count) = self.log.take(Instant::now()) {
            let user: String = user.chars().take(64).collect();
            let address = from.map(|ClientAddress(address)| address.to_string());
            tracing::warn!(user, address, count, "invalid authentication was requested");
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}
