//! Builders of requests.
//!
//! Every method of [`Client`](crate::Client) that reads or writes keys takes a generated message or
//! one of these builders, which convert into it:
//!
//! ```
//! use portunus_client::{Compare, Op, Put, Range, Txn};
//!
//! let newest_ten = Range::prefix("/pods/").sorted_by_mod_revision(true).limit(10);
//! let create = Txn::new()
//!     .when(Compare::create_revision("/pods/a").equals(0))
//!     .then(Put::new("/pods/a", "spec"))
//!     .otherwise(Range::key("/pods/a"));
//! # let _: (Op, Op) = (newest_ten.into(), create.into());
//! ```
//!
//! A builder checks nothing: the client does, before it sends the request.

mod compare;
mod range;
mod txn;
mod watch;
mod write;

pub use self::compare::{Compare, CompareTarget};
pub use self::range::Range;
pub use self::txn::{Op, Txn};
pub use self::watch::Watch;
pub use self::write::{Delete, Put};
