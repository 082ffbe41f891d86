//! Finding, verifying, exporting, importing and adopting, through server and client.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    AdoptRequest, AppendId, Bytes, Classify as _, Condition, ExecState, ExportRequest, FindRequest,
    Head, ImportRequest, Operations, Outcome, Owner, SessionsError, VerifyProgress, VerifyRequest,
};
use mainspring_transport_grpc::{CHUNK_BYTES, LinkOptions, RemoteOperations, ServeOptions};
use mainspring_wire::operations_v1 as wire;
use mainspring_wire::operations_v1::import_request::Target;
use mainspring_wire::operations_v1::operations_client::OperationsClient;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::address_book::{BOTH, Over, Running};
use crate::fake::{Fake, assert_condition, caller, session, uid};
use crate::fake_operations::{FakeOperations, FakeRegistry, head};

async fn serving(over: Over, link: LinkOptions) -> (Running, Arc<FakeOperations>) {
    let fake = Arc::new(FakeOperations::default());
    let mut options = ServeOptions::default();
    options.link = link;
    options.operations = Some(fake.clone());
    (Running::sessions_with(over, Arc::new(Fake::default()), options).await, fake)
}

async fn connected(over: Over) -> (Running, Arc<FakeOperations>, RemoteOperations) {
    let (running, fake) = serving(over, LinkOptions::default()).await;
    let remote =
        RemoteOperations::connect(&running.address, &LinkOptions::default()).await.unwrap();
    (running, fake, remote)
}

async fn raw(running: &Running) -> OperationsClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    OperationsClient::new(endpoint.connect().await.unwrap())
}

fn owner(subject: &str) -> Owner {
    Owner { issuer: "i".to_owned(), subject: subject.to_owned() }
}

#[tokio::test]
async fn a_find_reaches_the_service_as_it_is() {
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        let request = FindRequest {
            project: "p".to_owned(),
            owner: Some(owner("s")),
            states: vec![ExecState::Failed, ExecState::Awaiting],
            labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            harness: "h".to_owned(),
            page_size: 3,
            page_token: "t".to_owned(),
        };
        let page = remote.find(&caller(), request.clone()).await.unwrap();
        assert_eq!(page.sessions, [session("found")]);
        assert_eq!(page.next_page_token, "more");
        assert_eq!(fake.last(), format!("/mainspring.v1.Operations/Find {request:?}"));
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_verification_ends_with_its_result_or_an_error() {
    let (_running, fake, remote) = connected(Over::Tcp).await;
    let verify = async |text: &str| -> Vec<_> {
        let request = VerifyRequest { session: uid(text), expect_head: Some(head()) };
        let updates = remote.verify(&caller(), request.clone()).await.unwrap();
        assert_eq!(fake.last(), format!("/mainspring.v1.Operations/Verify {request:?}"));
        updates.collect().await
    };
    let updates = verify("sess-1").await;
    assert!(matches!(updates[0], Ok(VerifyProgress::Checked { records: 3, total: 7 })));
    let Ok(VerifyProgress::Done(report)) = &updates[1] else {
        panic!("a result");
    };
    assert_eq!((report.session.as_ref(), report.head), (Some(&uid("sess-1")), head()));
    assert!(report.head_attested);
    assert_eq!(updates.len(), 2);

    let updates = verify("tampered").await;
    assert_condition(updates[1].as_ref().unwrap_err(), Condition::JournalTampered);
    assert_eq!(updates.len(), 2);

    // A host that just stops has verified nothing.
    let updates = verify("short").await;
    assert_condition(updates[1].as_ref().unwrap_err(), Condition::Internal);
    assert_eq!(updates.len(), 2);
}

#[tokio::test]
async fn an_export_arrives_line_by_line_and_travels_many_to_a_message() {
    let (running, fake, remote) = connected(Over::Tcp).await;
    let mut lines: Vec<_> = (0..20_000).map(|n| Bytes::from(format!("line {n}\n"))).collect();
    lines.push(Bytes::from("x".repeat(3 * CHUNK_BYTES) + "\n"));
    lines.push(Bytes::from("the head\n"));
    fake.lines.lock().unwrap().clone_from(&lines);
    let request = ExportRequest { session: uid("sess-1"), after: head() };
    let exported = remote.export(&caller(), request.clone()).await.unwrap();
    let exported: Vec<_> = exported.map(Result::unwrap).collect().await;
    assert!(exported == lines, "the same lines");
    assert_eq!(fake.last(), format!("/mainspring.v1.Operations/Export {request:?}"));

    let message = wire::ExportRequest { session: "s".to_owned(), after: None };
    let mut chunks = raw(&running).await.export(message).await.unwrap().into_inner();
    let mut sizes = Vec::new();
    while let Some(chunk) = chunks.message().await.unwrap() {
        assert!(chunk.lines.ends_with(b"\n"), "lines are whole");
        sizes.push(chunk.lines.len());
    }
    assert!(sizes.len() < 10, "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), lines.iter().map(Bytes::len).sum::<usize>());
    assert!(fake.last().contains(&format!("after: {:?}", Head::EMPTY)), "{}", fake.last());
}

#[tokio::test]
async fn an_export_that_fails_says_so_after_what_held() {
    let (_running, fake, remote) = connected(Over::Unix).await;
    fake.lines.lock().unwrap().extend([Bytes::from("one\n"), Bytes::from("two\n")]);
    let request = ExportRequest { session: uid("tampered"), after: Head::EMPTY };
    let lines: Vec<_> = remote.export(&caller(), request).await.unwrap().collect().await;
    assert_eq!(lines[0].as_ref().unwrap(), "one\n");
    assert_eq!(lines[1].as_ref().unwrap(), "two\n");
    assert_condition(lines[2].as_ref().unwrap_err(), Condition::JournalTampered);
    assert_eq!(lines.len(), 3);
}

#[tokio::test]
async fn a_line_of_an_export_that_no_message_holds_is_named() {
    let mut link = LinkOptions::default();
    link.message_bytes_max = 1 << 20;
    let (running, fake) = serving(Over::Tcp, link).await;
    fake.lines.lock().unwrap().push(Bytes::from("x".repeat(2 << 20) + "\n"));
    let remote =
        RemoteOperations::connect(&running.address, &LinkOptions::default()).await.unwrap();
    let request = ExportRequest { session: uid("s"), after: Head::EMPTY };
    let lines: Vec<_> = remote.export(&caller(), request).await.unwrap().collect().await;
    let error = lines[0].as_ref().unwrap_err();
    assert_condition(error, Condition::ValueTooLarge);
    assert!(error.to_string().contains("message_bytes_max"), "{error}");
}

#[tokio::test]
async fn an_import_takes_the_lines_as_they_were() {
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        let mut lines: Vec<_> = (0..30_000).map(|n| Bytes::from(format!("line {n}\n"))).collect();
        lines.push(Bytes::from("x".repeat(3 * CHUNK_BYTES) + "\n"));
        lines.push(Bytes::from("without its end"));
        let target = ImportRequest {
            session: Some(uid("sess-1")),
            harness: "h".to_owned(),
            project: "p".to_owned(),
            name: "n".to_owned(),
            id: Some(AppendId::new([3; 16])),
        };
        let source = stream::iter(lines.clone().into_iter().map(Ok).collect::<Vec<_>>());
        let done = remote.import(&caller(), target.clone(), Box::pin(source)).await.unwrap();
        assert_eq!(done, session("imported"));
        assert_eq!(fake.last(), format!("/mainspring.v1.Operations/Import {target:?}"));
        let imported = fake.imported.lock().unwrap().pop().unwrap().unwrap();
        assert!(imported == lines, "the same lines");
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_import_whose_lines_fail_never_looks_finished_to_the_host() {
    let (_running, fake, remote) = connected(Over::Tcp).await;
    let broken = SessionsError::new(Condition::BadLine, "line 2 cannot be read");
    let lines = stream::iter([Ok(Bytes::from("one\n")), Err(broken)]);
    let caller = caller();
    let importing = remote.import(&caller, ImportRequest::default(), Box::pin(lines));
    let error = importing.await.unwrap_err();
    assert_condition(&error, Condition::BadLine);
    assert_eq!(error.outcome(), Outcome::NotApplied);
    fake.import_ended.notified().await;
    let imported = fake.imported.lock().unwrap().pop().unwrap();
    imported.expect_err("what was given up has no end");
}

#[tokio::test]
async fn an_import_names_its_target_first_and_once() {
    let (running, fake, _) = connected(Over::Tcp).await;
    let import = async |messages: Vec<wire::ImportRequest>| {
        raw(&running).await.import(stream::iter(messages)).await
    };
    let message = |target: Option<Target>, lines: &'static str| wire::ImportRequest {
        target,
        lines: Bytes::from_static(lines.as_bytes()),
    };
    let check = async |messages, words: &str| {
        let status = import(messages).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{words}");
        assert!(status.message().starts_with(words), "{words}: {}", status.message());
    };
    check(vec![], "target: missing").await;
    check(vec![message(None, "a\n")], "target: missing").await;
    let bad = Target { id: "zz".to_owned(), ..Default::default() };
    check(vec![message(Some(bad), "")], "target.id: ").await;
    assert_eq!(fake.last(), "", "nothing reached the service");
    let target = || Some(Target::default());
    let twice = vec![message(target(), "a\n"), message(target(), "b\n")];
    check(twice, "target: it is not in the first message").await;
    fake.imported.lock().unwrap().clear();

    // Any cut of the lines will do, and the first message may carry some.
    let cut = ["on", "e\ntw", "o", "\n", "", "three\nfour"];
    let mut messages = vec![message(target(), "zero\n")];
    messages.extend(cut.map(|lines| message(None, lines)));
    import(messages).await.unwrap();
    let imported = fake.imported.lock().unwrap().pop().unwrap().unwrap();
    assert_eq!(imported, ["zero\n", "one\n", "two\n", "three\n", "four"]);
}

#[tokio::test]
async fn adopting_is_for_operators_and_the_rest_is_not() {
    for over in BOTH {
        let (sessions, fake, beside_sessions) = connected(over).await;
        let registry = Arc::new(FakeRegistry::default());
        let operators =
            Running::operators(over, registry, fake.clone(), ServeOptions::default()).await;
        let link = LinkOptions::default();
        let for_operators = RemoteOperations::connect(&operators.address, &link).await.unwrap();
        let adopt = |subject| AdoptRequest { session: uid("sess-1"), owner: owner(subject) };

        let adopted = for_operators.adopt(&caller(), adopt("s")).await.unwrap();
        assert_eq!(adopted, session("sess-1"));
        let seen = format!("/mainspring.v1.Administration/Adopt {:?}", adopt("s"));
        assert_eq!(fake.last(), seen);
        let error = for_operators.adopt(&caller(), adopt("other")).await.unwrap_err();
        assert_condition(&error, Condition::FailedPrecondition);

        let error = beside_sessions.adopt(&caller(), adopt("s")).await.unwrap_err();
        assert_condition(&error, Condition::Unimplemented);
        assert!(error.to_string().starts_with("adopt needs mainspring.v1.Administration"));
        let error = for_operators.find(&caller(), FindRequest::default()).await.unwrap_err();
        assert_condition(&error, Condition::Unimplemented);
        assert!(error.to_string().starts_with("find needs mainspring.v1.Operations"));
        operators.stop().await.unwrap();
        sessions.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_host_without_operations_refuses_each_by_name() {
    let running = Running::sessions(Over::Tcp, Arc::new(Fake::default())).await;
    let remote =
        RemoteOperations::connect(&running.address, &LinkOptions::default()).await.unwrap();
    let verify = VerifyRequest { session: uid("s"), expect_head: None };
    let export = ExportRequest { session: uid("s"), after: Head::EMPTY };
    let lines = Box::pin(stream::iter([Ok(Bytes::from("one\n"))]));
    let refused = [
        ("Find", remote.find(&caller(), FindRequest::default()).await.map(|_| ())),
        ("Verify", remote.verify(&caller(), verify).await.map(|_| ())),
        ("Export", remote.export(&caller(), export).await.map(|_| ())),
        ("Import", remote.import(&caller(), ImportRequest::default(), lines).await.map(|_| ())),
    ];
    for (name, result) in refused {
        let error = result.unwrap_err();
        assert_condition(&error, Condition::Unimplemented);
        let words = format!("/mainspring.v1.Operations/{name} is not served by this host");
        assert_eq!(error.to_string(), words);
    }
}
