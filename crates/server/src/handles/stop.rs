//! How the process ends: on request, or because of a fatal error.

use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::sync::watch;

use crate::error_chain::chain;

/// Why the process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// A signal or a removal from the cluster, with the text to log.
    Requested(&'static str),
    /// Continuing would risk the data. The text names the error.
    Fatal(String),
}

/// Stops the threads and tasks of the process. The first reason wins, but a failure while
/// stopping on request replaces it.
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
    /// Ends the process for this reason.
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

    /// Ends the process because continuing would risk the data.
    pub fn fatal(&self, error: &dyn std::error::Error) {
        let text = chain(error);
        tracing::error!(reason = %text, "this member cannot go on and stops");
        self.stop(StopReason::Fatal(text));
    }

    /// Whether the process is ending.
    pub fn is_stopping(&self) -> bool {
        *self.sender.borrow()
    }

    /// Why the process is ending; `None` while it is not.
    pub fn reason(&self) -> Option<StopReason> {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until the process is ending.
    pub async fn stopped(&self) {
        // The sender lives in this switch, so this cannot end early.
        let _ = self.sender.subscribe().wait_for(|stopping| *stopping).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_during_a_requested_stop_is_reported() {
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
