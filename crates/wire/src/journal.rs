//! Journals that are verified, exported and imported.

use mainspring_api::{
    AppendId, ExportRequest, Head, ImportRequest, Seq, VerifyProgress, VerifyReport, VerifyRequest,
};

use crate::error::{FieldPath, WireError, optional, required};
use crate::operations_v1 as wire;
use crate::operations_v1::import_request::Target;
use crate::operations_v1::verify_progress as progress;
use crate::scalar::{hash_from, seq_from, seq_to, session_uid, session_uid_opt, text_of};

/// A head has a hash exactly when its position is not 0.
impl TryFrom<Head> for wire::JournalHead {
    type Error = WireError;

    fn try_from(head: Head) -> Result<Self, WireError> {
        match (head.seq, head.hash) {
            (Seq::ZERO, None) => Ok(Self::default()),
            (Seq::ZERO, Some(_)) | (_, None) => {
                Err(WireError::BadHash { path: FieldPath::of("hash") })
            }
            (seq, Some(hash)) => Ok(Self { seq: seq_to("seq", seq)?, hash: hash.to_string() }),
        }
    }
}

impl TryFrom<wire::JournalHead> for Head {
    type Error = WireError;

    fn try_from(head: wire::JournalHead) -> Result<Self, WireError> {
        match (seq_from("seq", head.seq)?, head.hash.as_str()) {
            (Seq::ZERO, "") => Ok(Self::EMPTY),
            (Seq::ZERO, _) => Err(WireError::BadHash { path: FieldPath::of("hash") }),
            (seq, hash) => Ok(Self::at(seq, hash_from("hash", hash)?)),
        }
    }
}

impl TryFrom<VerifyRequest> for wire::VerifyRequest {
    type Error = WireError;

    fn try_from(request: VerifyRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: request.session.to_string(),
            expect_head: optional("expect_head", request.expect_head, TryInto::try_into)?,
        })
    }
}

impl TryFrom<wire::VerifyRequest> for VerifyRequest {
    type Error = WireError;

    fn try_from(request: wire::VerifyRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: session_uid("session", &request.session)?,
            expect_head: optional("expect_head", request.expect_head, TryInto::try_into)?,
        })
    }
}

fn count_to(field: &str, count: u64) -> Result<i64, WireError> {
    i64::try_from(count).map_err(|_| WireError::out_of_range(field, count))
}

fn count_from(field: &str, count: i64) -> Result<u64, WireError> {
    u64::try_from(count).map_err(|_| WireError::out_of_range(field, count))
}

/// Leaves out the session of a report: the request named it.
impl TryFrom<VerifyProgress> for wire::VerifyProgress {
    type Error = WireError;

    fn try_from(update: VerifyProgress) -> Result<Self, WireError> {
        use progress::Progress as Wire;
        let progress = match update {
            VerifyProgress::Checked { records, total } => Wire::Checked(progress::Checked {
                records: count_to("checked.records", records)?,
                total: count_to("checked.total", total)?,
            }),
            VerifyProgress::Done(report) => Wire::Done(progress::Done {
                head: optional("done.head", Some(report.head), TryInto::try_into)?,
                head_attested: report.head_attested,
            }),
        };
        Ok(Self { progress: Some(progress) })
    }
}

/// The session of a report is not on the wire and comes back unset.
impl TryFrom<wire::VerifyProgress> for VerifyProgress {
    type Error = WireError;

    fn try_from(update: wire::VerifyProgress) -> Result<Self, WireError> {
        use progress::Progress as Wire;
        Ok(match update.progress.ok_or_else(|| WireError::missing("progress"))? {
            Wire::Checked(checked) => Self::Checked {
                records: count_from("checked.records", checked.records)?,
                total: count_from("checked.total", checked.total)?,
            },
            Wire::Done(done) => Self::Done(VerifyReport {
                session: None,
                head: required("done.head", done.head, TryInto::try_into)?,
                head_attested: done.head_attested,
            }),
        })
    }
}

impl TryFrom<ExportRequest> for wire::ExportRequest {
    type Error = WireError;

    fn try_from(request: ExportRequest) -> Result<Self, WireError> {
        let after = (request.after != Head::EMPTY).then_some(request.after);
        Ok(Self {
            session: request.session.to_string(),
            after: optional("after", after, TryInto::try_into)?,
        })
    }
}

impl TryFrom<wire::ExportRequest> for ExportRequest {
    type Error = WireError;

    fn try_from(request: wire::ExportRequest) -> Result<Self, WireError> {
        Ok(Self {
            session: session_uid("session", &request.session)?,
            after: optional("after", request.after, TryInto::try_into)?.unwrap_or(Head::EMPTY),
        })
    }
}

impl From<ImportRequest> for Target {
    fn from(request: ImportRequest) -> Self {
        Self {
            session: text_of(request.session.as_ref()),
            harness: request.harness,
            project: request.project,
            name: request.name,
            id: text_of(request.id.as_ref()),
        }
    }
}

impl TryFrom<Target> for ImportRequest {
    type Error = WireError;

    fn try_from(target: Target) -> Result<Self, WireError> {
        let id = match target.id.as_str() {
            "" => None,
            text => Some(AppendId::from_hex(text).map_err(|error| WireError::bad_id("id", error))?),
        };
        Ok(Self {
            session: session_uid_opt("session", &target.session)?,
            harness: target.harness,
            project: target.project,
            name: target.name,
            id,
        })
    }
}
