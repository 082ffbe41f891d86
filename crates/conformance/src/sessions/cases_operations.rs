//! Operations: resolve, verify, export, import.

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    BoxStream, Bytes, Condition, ExportRequest, Head, ImportRequest, Resolution, ResolveRequest,
    Session, SessionUid, SessionsError, VerifyProgress, VerifyReport, VerifyRequest, method,
};

use super::support::{refused, unknown};
use super::{Client, Setup, Subject};

async fn export(client: &Client, session: &SessionUid) -> Result<Vec<u8>, SessionsError> {
    let request = ExportRequest { session: session.clone(), after: Head::EMPTY };
    let caller = client.as_caller(method::EXPORT);
    let mut lines = client.operations.export(&caller, request).await?;
    let mut all = Vec::new();
    while let Some(line) = lines.next().await {
        all.extend_from_slice(&line?);
    }
    Ok(all)
}

async fn import(client: &Client, lines: &[u8]) -> Result<Session, SessionsError> {
    let caller = client.as_caller(method::IMPORT);
    let lines: Vec<_> = lines
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| Ok(Bytes::copy_from_slice(line)))
        .collect();
    let lines: BoxStream<'static, _> = Box::pin(stream::iter(lines));
    client.operations.import(&caller, ImportRequest::default(), lines).await
}

async fn verify(client: &Client, request: VerifyRequest) -> Result<VerifyReport, SessionsError> {
    let caller = client.as_caller(method::VERIFY);
    let mut steps = client.operations.verify(&caller, request).await?;
    while let Some(step) = steps.next().await {
        if let VerifyProgress::Done(report) = step? {
            return Ok(report);
        }
    }
    panic!("the verification ended without a word")
}

/// An export is evidence: it holds, it can be taken in elsewhere, and says the same there.
pub async fn an_export_is_imported_elsewhere<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a, model b").await;
    let lines = export(&world.me, &session).await.unwrap();
    let elsewhere = Setup::<S>::new().await.expect("there was one before").open().await;
    let imported = import(&elsewhere.me, &lines).await.unwrap();
    assert_eq!(imported.uid, session);
    assert_eq!(elsewhere.journal(&session).await, world.journal(&session).await);
    assert_eq!(export(&elsewhere.me, &session).await.unwrap(), lines);
    elsewhere.me.run(&session, "out c").await.ok();
    refused(import(&world.me, &lines).await, Condition::AlreadyExists);
}

/// A journal that was changed, or cut, is not taken in.
pub async fn a_changed_export_is_refused<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let lines = export(&world.me, &session).await.unwrap();
    let text = String::from_utf8(lines).unwrap();
    let elsewhere = Setup::<S>::new().await.expect("there was one before").open().await;
    let changed = text.replacen("\"go\"", "\"no\"", 1);
    assert_ne!(changed, text);
    refused(import(&elsewhere.me, changed.as_bytes()).await, Condition::JournalTampered);
    let mut cut: Vec<_> = text.split_inclusive('\n').collect();
    cut.remove(3);
    refused(import(&elsewhere.me, cut.concat().as_bytes()).await, Condition::JournalTampered);
    assert!(import(&elsewhere.me, b"no journal\n").await.is_err());
    assert!(import(&elsewhere.me, b"").await.is_err());
    assert_eq!(elsewhere.count().await, 0);
}

/// A verification ends at the head, and notices that a known one is missing.
pub async fn a_verification_knows_the_head<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let request = VerifyRequest { session: session.clone(), expect_head: None };
    let report = verify(&world.me, request.clone()).await.unwrap();
    let head = world.row(&session).await.view.head;
    assert_eq!((report.head, report.head_attested), (head, true));
    let expect = |head| VerifyRequest { expect_head: Some(head), ..request.clone() };
    verify(&world.me, expect(head)).await.unwrap();
    let hash = head.hash.unwrap();
    let longer = Head::at(head.seq.next(), hash);
    refused(verify(&world.me, expect(longer)).await, Condition::JournalTampered);
    let missing = VerifyRequest { session: unknown(), expect_head: None };
    refused(verify(&world.me, missing).await, Condition::SessionNotFound);
}

/// A call whose outcome nobody knows is settled by a person's word, and the turn goes on.
pub async fn a_resolved_call_is_gone_on_with<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let shown = world.me.run(&session, "tool t1 lost, out b").await;
    assert!(shown.error.is_some());
    let stuck = world.me.resume(&session).await;
    assert_eq!(
        mainspring_api::Classify::code(stuck.failed()),
        Condition::UnansweredToolCall.code()
    );
    let request = ResolveRequest {
        session: session.clone(),
        execution_id: world.execution(&session).await,
        tool_call_id: "t1".to_owned(),
        resolution: Resolution::Result(Box::default()),
    };
    let caller = world.me.as_caller(method::RESOLVE);
    world.me.sessions.resolve(&caller, request).await.unwrap();
    world.me.resume(&session).await.ok();
    assert_eq!(*world.tools.keys.lock().unwrap(), ["key-t1"], "it is not made again");
    let journal = world.journal(&session).await;
    assert!(journal.ends_with("TR OUT END RESUME"), "{journal}");
}
