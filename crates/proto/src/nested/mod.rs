//! Operations of transactions, which may be transactions.
//!
//! These are the only recursive messages of etcd. Go decodes them ten thousand messages deep (3.7,
//! 3.8) or without a limit (3.5, 3.6), and a request that a Go member accepted is in the log. The
//! generated code stops at a depth of a hundred and needs stack for each level, so the two messages
//! are written by hand: decoding, encoding, measuring and dropping them need constant stack at any
//! depth, and time linear in their bytes.
//!
//! `Clone`, `PartialEq` and `Debug` are derived and do recurse: they are for tests and for
//! transactions of known depth. No code may call them on a message from a client or a log.

mod decode;
mod encode;
mod tree;

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};

use crate::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse,
};
use tree::{Op, Txn};

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestOp {
    /// The operation; `None` is refused by servers.
    pub request: Option<request_op::Request>,
}

/// Variants of [`RequestOp`].
pub mod request_op {
    use super::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};

    /// The operation.
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum Request {
        /// A range.
        #[prost(message, tag = "1")]
        RequestRange(RangeRequest),
        /// A put.
        #[prost(message, tag = "2")]
        RequestPut(PutRequest),
        /// A delete.
        #[prost(message, tag = "3")]
        RequestDeleteRange(DeleteRangeRequest),
        /// A transaction.
        #[prost(message, tag = "4")]
        RequestTxn(TxnRequest),
    }
}

/// The response to one operation of a transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseOp {
    /// The response, of the operation's kind.
    pub response: Option<response_op::Response>,
}

/// Variants of [`ResponseOp`].
pub mod response_op {
    use super::{DeleteRangeResponse, PutResponse, RangeResponse, TxnResponse};

    /// The response.
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum Response {
        /// To a range.
        #[prost(message, tag = "1")]
        ResponseRange(RangeResponse),
        /// To a put.
        #[prost(message, tag = "2")]
        ResponsePut(PutResponse),
        /// To a delete.
        #[prost(message, tag = "3")]
        ResponseDeleteRange(DeleteRangeResponse),
        /// To a transaction.
        #[prost(message, tag = "4")]
        ResponseTxn(TxnResponse),
    }
}

/// What both messages have in common but a blanket implementation may not give them: the field
/// that holds the operation, and the variant of it that is a transaction.
macro_rules! message_of_any_depth {
    ($op:ty, $field:ident: $kind:ty, $variant:path, $txn:ty) => {
        impl Op for $op {
            type Txn = $txn;
            type Kind = $kind;

            fn kind(&self) -> &Option<$kind> {
                &self.$field
            }

            fn kind_mut(&mut self) -> &mut Option<$kind> {
                &mut self.$field
            }

            fn txn(&self) -> Option<&$txn> {
                match &self.$field {
                    Some($variant(txn)) => Some(txn),
                    _ => None,
                }
            }

            fn take_txn(&mut self) -> Option<$txn> {
                self.txn()?;
                match self.$field.take() {
                    Some($variant(txn)) => Some(txn),
                    _ => None,
                }
            }

            fn set_txn(&mut self, txn: $txn) {
                self.$field = Some($variant(txn));
            }

            fn merge_kind(
                kind: &mut Option<$kind>,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                <$kind>::merge(kind, tag, wire_type, buf, context)
            }

            fn encode_kind(kind: &$kind, buf: &mut impl BufMut) {
                kind.encode(buf);
            }

            fn kind_len(kind: &$kind) -> usize {
                kind.encoded_len()
            }
        }

        impl Message for $op {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                encode::encode(self, buf);
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                decode::merge_field(self, tag, wire_type, buf, context)
            }

            fn encoded_len(&self) -> usize {
                encode::encoded_len(self)
            }

            fn clear(&mut self) {
                *self.kind_mut() = None;
            }
        }

        impl Drop for $op {
            fn drop(&mut self) {
                if let Some(txn) = self.take_txn() {
                    tree::drop_iteratively(txn);
                }
            }
        }
    };
}

message_of_any_depth!(
    RequestOp,
    request: request_op::Request,
    request_op::Request::RequestTxn,
    TxnRequest
);
message_of_any_depth!(
    ResponseOp,
    response: response_op::Response,
    response_op::Response::ResponseTxn,
    TxnResponse
);

impl Txn for TxnRequest {
    type Op = RequestOp;
    const BRANCH_TAGS: &'static [u32] = &[2, 3];

    fn branch(&self, tag: u32) -> &[RequestOp] {
        match tag {
            2 => &self.success,
            _ => &self.failure,
        }
    }

    fn branch_mut(&mut self, tag: u32) -> &mut Vec<RequestOp> {
        match tag {
            2 => &mut self.success,
            _ => &mut self.failure,
        }
    }

    fn plain_len(&self) -> usize {
        prost::encoding::message::encoded_len_repeated(1, &self.compare)
    }

    fn encode_plain(&self, buf: &mut impl BufMut) {
        prost::encoding::message::encode_repeated(1, &self.compare, buf);
    }
}

impl Txn for TxnResponse {
    type Op = ResponseOp;
    const BRANCH_TAGS: &'static [u32] = &[3];

    fn branch(&self, _: u32) -> &[ResponseOp] {
        &self.responses
    }

    fn branch_mut(&mut self, _: u32) -> &mut Vec<ResponseOp> {
        &mut self.responses
    }

    fn plain_len(&self) -> usize {
        self.plain().encoded_len()
    }

    fn encode_plain(&self, buf: &mut impl BufMut) {
        self.plain().encode_raw(buf);
    }
}

impl TxnResponse {
    /// A copy without the responses.
    fn plain(&self) -> TxnResponse {
        TxnResponse {
            header: self.header,
            succeeded: self.succeeded,
            responses: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
