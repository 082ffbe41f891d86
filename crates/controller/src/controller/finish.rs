//! Ending a turn as its run deserves.

use mainspring_api::{
    CancelReason, Divergence, EventBody, HarnessEnd, HarnessError, Head, RecordedError, Seq,
    SinkError,
};
use mainspring_eventlog::Level;

use super::Controller;
use crate::cancel::end_canceled;
use crate::error::ControllerError;
use crate::run::{Ran, TurnStop};
use crate::writer::{Tag, Writer};

impl Controller {
    /// Ends a turn as its run deserves: an end, an error, or neither.
    pub(crate) async fn finish(&self, tag: &Tag, ran: Ran) -> Result<Head, ControllerError> {
        let Ran { result, closing, writer, out_of_time } = ran;
        let mut writer = writer.expect("a live sink gives its writer back");
        if let Some(stop) = closing.stop {
            return Err(stopped(stop, result.err()));
        }
        match self.options.stop.get() {
            Some(TurnStop::Cancel(reason)) => {
                return self.finish_canceled(tag, writer, reason).await;
            }
            // What was done before the host's word reached it is done.
            Some(TurnStop::Interrupt)
                if closing.latched || result.is_err() || closing.unconsumed.is_some() =>
            {
                return Err(ControllerError::Interrupted);
            }
            Some(TurnStop::Interrupt) | None => {}
        }
        let failure = match (closing.failure, result, closing.unconsumed) {
            (Some(failure), _, _) => Some(ControllerError::latched(failure)),
            (None, Err(_), _) if out_of_time => Some(ControllerError::DeadlineExceeded),
            (None, Err(error), _) => Some(ControllerError::Run(error)),
            (None, Ok(()), Some(seq)) => Some(unconsumed(seq)),
            (None, Ok(()), None) => None,
        };
        let Some(failure) = failure else {
            let end = EventBody::End(Some(HarnessEnd::completed()));
            writer.append_one(tag.event(end).into()).await?;
            return Ok(writer.head);
        };
        let error = RecordedError {
            code: if out_of_time { DEADLINE_CODE } else { 0 },
            description: failure.to_string(),
        };
        // The turn has failed whether or not this lands: a superseded writer leaves no mark.
        let recorded = writer.append_one(tag.event(EventBody::Error(Some(error))).into()).await;
        if let Err(error) = recorded {
            tracing::debug!(session = %writer.journal.uid(), error = %error, "error record not appended");
        }
        Err(failure)
    }

    /// Ends a turn that the host canceled; whatever its run made of that.
    async fn finish_canceled(
        &self,
        tag: &Tag,
        mut writer: Writer,
        reason: CancelReason,
    ) -> Result<Head, ControllerError> {
        let row = self.journal.log().get(self.journal.uid(), Level::Committed).await?;
        end_canceled(&mut writer, tag, &row, reason, &*self.options.clock).await?;
        Err(ControllerError::Canceled(reason))
    }
}

/// The verdict of a run that was stopped: neither an error nor an end follows.
/// A failure beside a park is not hidden by it.
fn stopped(stop: SinkError, run: Option<HarnessError>) -> ControllerError {
    match (stop, run) {
        (SinkError::Parked(park), Some(error)) if !error.is_unwinding_of(&park) => {
            ControllerError::Run(error)
        }
        (stop, _) => ControllerError::latched(stop),
    }
}

pub(crate) fn unconsumed(seq: Seq) -> ControllerError {
    let what = "the recorded effect was not asked for";
    ControllerError::ReplayDiverged(Divergence::at(seq, what))
}

/// gRPC's DEADLINE_EXCEEDED, as error records carry it.
const DEADLINE_CODE: i32 = 4;
