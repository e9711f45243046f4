//! Alarms: raised until a client disarms them, the same on every member.

use std::collections::BTreeSet;

use bytes::Bytes;
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::{ApplyError, Store};
use portunus_proto::etcdserverpb::{
    AlarmMember, AlarmRequest, AlarmType, alarm_request::AlarmAction,
};
use prost::Message;

/// The alarms in force, by type and member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alarms {
    raised: BTreeSet<(i32, u64)>,
}

impl Alarms {
    /// Reads the alarms from the bucket; fails on a key that is no alarm.
    pub fn load(store: &Store) -> Result<Alarms, prost::DecodeError> {
        let mut alarms = Alarms::default();
        for (key, _) in store.iter_raw(Bucket::Alarm) {
            let alarm = AlarmMember::decode(key.clone())?;
            alarms.raised.insert((alarm.alarm, alarm.member_id));
        }
        Ok(alarms)
    }

    /// Whether a member raised this alarm.
    pub fn is_raised(&self, member_id: u64, alarm: AlarmType) -> bool {
        self.raised.contains(&(alarm as i32, member_id))
    }

    /// Whether any member raised this alarm.
    pub fn is_raised_by_any(&self, alarm: AlarmType) -> bool {
        self.raised.iter().any(|(kind, _)| *kind == alarm as i32)
    }

    /// The alarms of a type, or all for [`AlarmType::None`].
    pub fn list(&self, alarm: i32) -> Vec<AlarmMember> {
        self.raised
            .iter()
            .filter(|(kind, _)| alarm == AlarmType::None as i32 || *kind == alarm)
            .map(|&(alarm, member_id)| AlarmMember { member_id, alarm })
            .collect()
    }

    /// Applies a request and returns the alarms it is about.
    pub fn apply(
        &mut self,
        store: &mut Store,
        request: &AlarmRequest,
    ) -> Result<Vec<AlarmMember>, ApplyError> {
        let alarm = AlarmMember {
            member_id: request.member_id,
            alarm: request.alarm,
        };
        // etcd keeps an alarm that it does not know like any other, and does nothing for an
        // action that it does not know.
        let Ok(action) = AlarmAction::try_from(request.action) else {
            return Ok(Vec::new());
        };
        let kind = AlarmType::try_from(request.alarm);
        let kind = kind.map_or("UNKNOWN", |kind| kind.as_str_name());
        match action {
            AlarmAction::Get => Ok(self.list(request.alarm)),
            AlarmAction::Activate if request.alarm == AlarmType::None as i32 => Ok(Vec::new()),
            AlarmAction::Activate => {
                if self.raised.insert((request.alarm, request.member_id)) {
                    tracing::warn!(alarm = kind, member = %format_args!("{:x}", request.member_id), "alarm raised");
                    let key = Bytes::from(alarm.encode_to_vec());
                    store.put_raw(Bucket::Alarm, key, Bytes::new())?;
                }
                Ok(vec![alarm])
            }
            AlarmAction::Deactivate => {
                if !self.raised.remove(&(request.alarm, request.member_id)) {
                    return Ok(Vec::new());
                }
                tracing::info!(alarm = kind, member = %format_args!("{:x}", request.member_id), "alarm disarmed");
                store.delete_raw(Bucket::Alarm, &alarm.encode_to_vec())?;
                Ok(vec![alarm])
            }
        }
    }
}
