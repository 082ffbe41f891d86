//! `api::Operations` over a connection.

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    AdoptRequest, BoxFuture, BoxStream, Bytes, Caller, Condition, ExportRequest, FindRequest,
    ImportRequest, ListPage, Operations, Session, SessionsError, VerifyProgress, VerifyRequest,
    async_trait,
};
use mainspring_wire::operations_v1 as wire;
use mainspring_wire::operations_v1::administration_client::AdministrationClient;
use mainspring_wire::operations_v1::administration_server::SERVICE_NAME as ADMINISTRATION;
use mainspring_wire::operations_v1::operations_client::OperationsClient;
use mainspring_wire::operations_v1::operations_server::SERVICE_NAME as OPERATIONS;
use tokio::sync::oneshot;

use crate::link::{ConnectOptions, Link};
use crate::metadata;
use crate::sessions::lines::{self, LINE_BYTES_MAX};
use crate::sessions::received::{
    Outgoing, bad_answer, bad_request, items, not_served, request, session,
};
use crate::status::Effect;

/// The journals of another host. Clones share the connection, which is made
/// anew when it is lost.
///
/// A host serves `adopt` on its operators' listener, and the rest beside its
/// sessions: what is not served at the address is refused by name.
#[derive(Debug, Clone)]
pub struct RemoteOperations {
    operations: OperationsClient<Link>,
    administration: AdministrationClient<Link>,
    out: Outgoing,
}

impl RemoteOperations {
    /// Connects to `address`.
    ///
    /// # Errors
    /// As for [`RemoteSessions::connect`](crate::RemoteSessions::connect).
    pub async fn connect(
        address: &str,
        options: impl Into<ConnectOptions>,
    ) -> Result<Self, SessionsError> {
        let options = options.into();
        let link = Link::connect(address, &options).await?;
        let bytes_max = options.link.message_bytes_max;
        Ok(Self {
            out: Outgoing { bytes_max },
            operations: OperationsClient::new(link.clone())
                .max_decoding_message_size(bytes_max)
                .max_encoding_message_size(bytes_max),
            administration: AdministrationClient::new(link)
                .max_decoding_message_size(bytes_max)
                .max_encoding_message_size(bytes_max),
        })
    }
}

fn broken(text: &str) -> SessionsError {
    SessionsError::new(Condition::Internal, format!("answer of the host: {text}"))
}

/// A chunk's lines, which are whole.
struct Lines(Bytes);

impl TryFrom<wire::ExportChunk> for Lines {
    type Error = mainspring_wire::WireError;

    fn try_from(chunk: wire::ExportChunk) -> Result<Self, Self::Error> {
        Ok(Self(chunk.lines))
    }
}

/// The messages of an import: its target, then its lines. On an error of the
/// lines it tells, and never ends: only an end that was meant is one.
fn outgoing(
    target: ImportRequest,
    lines: BoxStream<'static, Result<Bytes, SessionsError>>,
    failed: oneshot::Sender<SessionsError>,
) -> BoxStream<'static, wire::ImportRequest> {
    let first = wire::ImportRequest { target: Some(target.into()), lines: Bytes::new() };
    let pieces = lines::packed(lines).flat_map(|chunk| {
        // A line may be larger than a message, and may be cut.
        let pieces = chunk.map(|mut chunk| {
            let mut pieces = Vec::new();
            while !chunk.is_empty() {
                let piece = chunk.split_to(chunk.len().min(lines::CHUNK_BYTES));
                pieces.push(wire::ImportRequest { target: None, lines: piece });
            }
            pieces
        });
        let pieces: Vec<_> = match pieces {
            Ok(pieces) => pieces.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(pieces)
    });
    let rest =
        stream::unfold((Box::pin(pieces), Some(failed)), async |(mut pieces, mut failed)| {
            match pieces.next().await? {
                Ok(piece) => Some((piece, (pieces, failed))),
                Err(error) => {
                    if let Some(failed) = failed.take() {
                        let _ = failed.send(error);
                    }
                    std::future::pending().await
                }
            }
        });
    Box::pin(stream::iter([first]).chain(rest))
}

#[async_trait]
impl Operations for RemoteOperations {
    async fn find(&self, caller: &Caller, find: FindRequest) -> Result<ListPage, SessionsError> {
        let message = wire::FindRequest::try_from(find).map_err(bad_request)?;
        let answer = self.operations.clone().find(self.out.call(caller, message)?).await;
        let answer = answer.map_err(not_served("find", OPERATIONS, Effect::Read))?;
        answer.into_inner().try_into().map_err(bad_answer)
    }

    async fn verify(
        &self,
        caller: &Caller,
        verify: VerifyRequest,
    ) -> Result<BoxStream<'static, Result<VerifyProgress, SessionsError>>, SessionsError> {
        let uid = verify.session.clone();
        let message = wire::VerifyRequest::try_from(verify).map_err(bad_request)?;
        let answer = self.operations.clone().verify(self.out.call(caller, message)?).await;
        let answer = answer.map_err(not_served("verify", OPERATIONS, Effect::Read))?;
        let updates = Some(items(answer.into_inner(), Effect::Read));
        Ok(Box::pin(stream::unfold(updates, move |updates| {
            let uid = uid.clone();
            async move {
                let mut updates: BoxStream<'static, _> = updates?;
                let item = match updates.next().await {
                    Some(Ok(VerifyProgress::Done(mut report))) => {
                        report.session = Some(uid);
                        Ok(VerifyProgress::Done(report))
                    }
                    Some(item) => item,
                    // A verification that was cut short has verified nothing.
                    None => Err(broken("verify ended without its result")),
                };
                let rest = matches!(item, Ok(VerifyProgress::Checked { .. })).then_some(updates);
                Some((item, rest))
            }
        })))
    }

    async fn export(
        &self,
        caller: &Caller,
        export: ExportRequest,
    ) -> Result<BoxStream<'static, Result<Bytes, SessionsError>>, SessionsError> {
        let message = wire::ExportRequest::try_from(export).map_err(bad_request)?;
        let answer = self.operations.clone().export(self.out.call(caller, message)?).await;
        let answer = answer.map_err(not_served("export", OPERATIONS, Effect::Read))?;
        let chunks = items(answer.into_inner(), Effect::Read).map(|chunk| {
            let Lines(lines) = chunk?;
            match lines.last() {
                Some(b'\n') => Ok(lines),
                _ => Err(broken("a chunk does not end with a line")),
            }
        });
        Ok(lines::split(Box::pin(chunks), LINE_BYTES_MAX))
    }

    async fn import(
        &self,
        caller: &Caller,
        target: ImportRequest,
        lines: BoxStream<'static, Result<Bytes, SessionsError>>,
    ) -> Result<Session, SessionsError> {
        let (failed, failure) = oneshot::channel();
        let mut client = self.operations.clone();
        let request = request(outgoing(target, lines, failed), metadata::of_caller(caller));
        let sending: BoxFuture<'_, _> = Box::pin(client.import(request));
        let answer = tokio::select! {
            biased;
            // Leaving the call drops its stream, which the host sees as lost.
            Ok(error) = failure => return Err(error),
            answer = sending => answer,
        };
        session(answer.map_err(not_served("import", OPERATIONS, Effect::Write))?)
    }

    async fn adopt(&self, caller: &Caller, adopt: AdoptRequest) -> Result<Session, SessionsError> {
        let message = wire::AdoptRequest::from(adopt);
        let answer = self.administration.clone().adopt(self.out.call(caller, message)?).await;
        session(answer.map_err(not_served("adopt", ADMINISTRATION, Effect::Write))?)
    }
}
