//! Describe: where a session stands.

use mainspring_api::{DescribeReport, SessionUid, Standing, method};

use super::support::{turn, until};
use super::{Client, Setup, Subject};

async fn describe(client: &Client, session: &SessionUid) -> DescribeReport {
    let caller = client.as_caller(method::DESCRIBE);
    client.sessions.describe(&caller, session).await.unwrap()
}

/// "describe (state, holder of the fence and since when, pending approval or unknown effect, last error with code, the
/// next command to run)"
pub async fn a_report_says_where_a_session_stands<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let me = &world.me;
    let empty = me.created().await;
    let report = describe(me, &empty).await;
    assert_eq!((report.standing, report.holder), (Standing::Idle, None));
    let (parked, approval) = me.parked("").await;
    let report = describe(me, &parked).await;
    assert_eq!(report.standing, Standing::Parked);
    let call = report.open_call.expect("it waits on a call");
    assert_eq!((&*call.tool_call_id, &*call.tool), ("c1", "deploy"));
    assert_eq!(call.request_seq.map(|seq| seq.as_i64()), Some(approval.request_seq));
    assert!(report.holder.is_some_and(|holder| holder.is_here && holder.is_alive));
    assert!(report.next_commands[0].contains("approve"), "{:?}", report.next_commands);
    me.approve(&parked, &approval, true).await.unwrap();
    assert_eq!(describe(me, &parked).await.standing, Standing::Decided);
    let failed = me.created().await;
    me.run(&failed, "fail because").await;
    let report = describe(me, &failed).await;
    assert_eq!(report.standing, Standing::Failed);
    let error = report.last_error.expect("it has failed");
    assert!(error.message.contains("because"), "{error:?}");
    let unknown = me.created().await;
    me.run(&unknown, "tool t1 lost").await;
    let report = describe(me, &unknown).await;
    assert_eq!(report.standing, Standing::UnknownEffect);
    assert!(report.next_commands[0].contains("resolve"), "{:?}", report.next_commands);
    assert_eq!(report.open_call.expect("it has a call").tool_call_id, "t1");
    let running = me.created().await;
    let mut stream = me.exec(turn(&running, "hold here")).await.unwrap();
    until(&mut stream, "IN").await;
    let report = describe(me, &running).await;
    assert_eq!(report.standing, Standing::Running);
    assert_eq!(report.running.expect("it runs").operation, "exec");
    assert!(report.next_commands.iter().all(|command| command.starts_with("mainspring ")));
    world.holds.let_go("here");
    me.delete(&empty).await.unwrap();
    assert_eq!(describe(me, &empty).await.standing, Standing::Deleted);
}
