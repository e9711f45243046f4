//! How the process ends: on request, or because something must not go on.

use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::sync::watch;

use crate::error_chain::chain;

/// Why the process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody asked for it.
    Requested(&'static str),
    /// Going on would risk the data. The text says what and where.
    Fatal(String),
}

/// Everything that runs listens to this. The first reason wins, but a failure while
/// stopping on request is still a failure.
pub struct StopSwitch {
    reason: Mutex<Option<StopReason>>,
    sender: watch::Sender<bool>,
}

impl Default for StopSwitch {
    fn default() -> Self {
        StopSwitch {
            reason: Mutex::new(None),
            sender: watch::Sender::new(false),
        }
    }
}

impl StopSwitch {
    /// Ends the process.
    pub fn stop(&self, reason: StopReason) {
        {
            let mut first = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
            let is_worse = matches!(
                (&*first, &reason),
                (Some(StopReason::Requested(_)), StopReason::Fatal(_))
            );
            if first.is_none() || is_worse {
                *first = Some(reason);
            }
        }
        self.sender.send_replace(true);
    }

    /// Ends the process because going on would risk the data.
    pub fn fatal(&self, error: &dyn std::error::Error) {
        let text = chain(error);
        tracing::error!(reason = %text, "this member cannot go on and stops");
        self.stop(StopReason::Fatal(text));
    }

    /// Whether it is ending.
    pub fn is_stopping(&self) -> bool {
        *self.sender.borrow()
    }

    /// Why, once it is.
    pub fn reason(&self) -> Option<StopReason> {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until it is.
    pub async fn stopped(&self) {
        // The sender lives in this switch, so this cannot end early.
        let _ = self.sender.subscribe().wait_for(|stopping| *stopping).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_while_stopping_is_not_hidden_by_the_request() {
        let switch = StopSwitch::default();
        assert!(!switch.is_stopping());
        switch.stop(StopReason::Requested("SIGTERM"));
        switch.stop(StopReason::Fatal("the disk".to_owned()));
        switch.stop(StopReason::Requested("SIGINT"));
        assert!(switch.is_stopping());
        assert_eq!(
            switch.reason(),
            Some(StopReason::Fatal("the disk".to_owned()))
        );
    }
}
