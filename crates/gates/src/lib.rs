//! Versioned feature gates, compatibility versions and the cluster's decision.
