//! Registering and retiring, each whole or not at all.

use mainspring_api::{
    Condition, HarnessRegistration, HarnessSpec, RegisterOutcome, SessionsError, random_hex,
};
use mainspring_eventlog::{spec_bytes, spec_digest};
use mainspring_placement::Registered;

use super::row::{Row, Stored};
use super::{Parts, REGISTRATIONS_MAX, RESERVED, RETIRE_REASON_BYTES_MAX, not_found, spec};
use crate::service::invalid;

impl Parts {
    pub(super) async fn register(
        &self,
        name: &str,
        spec: HarnessSpec,
    ) -> Result<(HarnessRegistration, RegisterOutcome), SessionsError> {
        check_name(name)?;
        let taken = || {
            let message = format!("name {name:?} is a host's own: it cannot be registered");
            Err(SessionsError::new(Condition::AlreadyExists, message))
        };
        if RESERVED.contains(&name) || self.harnesses().configured(name).is_some() {
            return taken();
        }
        let _changing = self.routing.changing.lock().await;
        if self.rows()?.is_reserved(name).await? {
            return taken();
        }
        spec::check(&spec)?;
        let (digest, bytes) = (spec_digest(&spec), spec_bytes(&spec));
        let existing = self.rows()?.get(name).await?;
        if let Some((_, stored)) = &existing {
            let same =
                matches!(stored, Stored::Row(row) if row.digest == digest && row.spec == bytes);
            if !same {
                let message = format!("harness {name:?} is registered otherwise");
                return Err(SessionsError::new(Condition::AlreadyExists, message));
            }
        } else if self.harnesses().registered_count() >= REGISTRATIONS_MAX {
            let message = format!(
                "there are {REGISTRATIONS_MAX} registered harnesses (REGISTRATIONS_MAX) already"
            );
            return Err(SessionsError::new(Condition::QuotaExceeded, message));
        }
        let built = self.routing.builder.build(name, &spec);
        let (row, outcome) = match existing {
            Some((version, Stored::Row(row))) => {
                if row.retired.is_none() {
                    (row, RegisterOutcome::Unchanged)
                } else {
                    let row = Row { retired: None, ..row };
                    self.rows()?.put(name, version, &row).await?;
                    (row, RegisterOutcome::Reactivated)
                }
            }
            _ => {
                if let Err(reason) = &built {
                    let message = format!("harness {name:?} cannot be served here: {reason}");
                    return Err(SessionsError::new(Condition::HarnessUnservable, message));
                }
                let row = Row {
                    uid: format!("harness-{}", random_hex(&*self.service.options.entropy, 12)),
                    create_time: self.service.options.clock.now(),
                    digest,
                    retired: None,
                    spec: bytes,
                };
                self.rows()?.put(name, 0, &row).await?;
                (row, RegisterOutcome::Created)
            }
        };
        let placer = match self.harnesses().registered(name).map(|known| known.placer) {
            // What is served goes on as it is.
            Some(Ok(placer)) => Ok(placer),
            Some(Err(_)) | None => built,
        };
        self.harnesses().register(name, Registered { placer, retired: false });
        Ok((self.shown(name, Stored::Row(row)), outcome))
    }

    pub(super) async fn retire(
        &self,
        name: &str,
        reason: String,
    ) -> Result<HarnessRegistration, SessionsError> {
        if name.is_empty() {
            return Err(invalid("name is empty"));
        }
        if reason.len() > RETIRE_REASON_BYTES_MAX {
            let bytes = reason.len();
            return Err(invalid(format!(
                "reason is {bytes} bytes, at most {RETIRE_REASON_BYTES_MAX} are kept \
                 (RETIRE_REASON_BYTES_MAX)"
            )));
        }
        if self.harnesses().configured(name).is_some() {
            let message = format!("harness {name:?} is the host's own: it cannot be retired");
            return Err(SessionsError::new(Condition::FailedPrecondition, message));
        }
        let _changing = self.routing.changing.lock().await;
        let Some((version, stored)) = self.rows()?.get(name).await? else {
            return Err(not_found(name));
        };
        let Stored::Row(mut row) = stored else {
            let message = format!("the registration of {name:?} cannot be read");
            return Err(SessionsError::new(Condition::FailedPrecondition, message));
        };
        if row.retired.is_none() {
            row.retired = Some((self.service.options.clock.now(), reason));
            self.rows()?.put(name, version, &row).await?;
        }
        let stored = Stored::Row(row);
        let registered = match self.harnesses().registered(name) {
            Some(known) => Registered { retired: true, ..known },
            None => self.load(name, &stored),
        };
        self.harnesses().register(name, registered);
        Ok(self.shown(name, stored))
    }
}

/// `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`
fn check_name(name: &str) -> Result<(), SessionsError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let is_name = bytes.len() <= 63
        && ends.into_iter().all(|end| end.is_some_and(|byte| is_plain(*byte)))
        && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-');
    if is_name {
        return Ok(());
    }
    Err(invalid("name is not 1 to 63 of the characters a-z, 0-9 and -, with neither end a dash"))
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn a_name_is_a_label() {
        let longest = "a".repeat(63);
        for name in ["a", "0", "a-b", "a--b", "0-9", longest.as_str()] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let over = "a".repeat(64);
        for name in ["", "-", "a-", "-a", "A", "a_b", "a.b", "a b", "é", "a\0", over.as_str()] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
