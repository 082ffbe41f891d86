//! Who may use the registry.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    Action, AuthorizeRequest, Authorizer, AuthzError, Caller, CallerIdentity, Classify as _,
    Condition, ErrorKind, HarnessRegistry as _, HarnessState, RequestId, async_trait, method,
};

use super::{Host, assert_is, remote};
use crate::support::{World, caller};

/// Writes down what it is asked, and allows some of it.
#[derive(Debug, Default)]
struct Asked {
    allowed: Vec<Action>,
    seen: Mutex<Vec<(Action, &'static str)>>,
}

#[async_trait]
impl Authorizer for Asked {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        assert!(request.session.is_none() && request.owner.is_none());
        assert_eq!(request.caller.unwrap().subject, "operator");
        self.seen.lock().unwrap().push((request.action, request.method));
        match self.allowed.contains(&request.action) {
            true => Ok(()),
            false => Err(AuthzError::Denied),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_authoriser_is_asked_before_anything_is_told_or_done() {
    let world = World::new();
    let first = Host::on(&world, &["scripted"], None).await.unwrap();
    first.registered("agent").await;
    let operator = |method| Caller {
        identity: Some(CallerIdentity {
            issuer: "https://id.example".to_owned(),
            subject: "operator".to_owned(),
        }),
        ..Caller::anonymous(method, RequestId::new("t").unwrap())
    };
    let all = [
        (Action::RegistryRegister, method::REGISTER_HARNESS),
        (Action::RegistryRead, method::GET_HARNESS),
        (Action::RegistryList, method::LIST_HARNESSES),
        (Action::RegistryRetire, method::RETIRE_HARNESS),
    ];
    // Each in turn may be done, and the others may not.
    for (allowed, _) in all {
        let asked = Arc::new(Asked { allowed: vec![allowed], seen: Mutex::default() });
        let host = Host::on(&world, &["scripted"], Some(Arc::clone(&asked) as _)).await.unwrap();
        for (action, method) in all {
            for name in ["agent", "unknown", "scripted", ""] {
                let (who, nobody) = (operator(method), caller());
                let registry = &host.registry;
                let call = async |who: &Caller| match action {
                    Action::RegistryRegister => {
                        registry.register(who, name, remote("")).await.map(drop)
                    }
                    Action::RegistryRead => registry.get(who, name, false).await.map(drop),
                    Action::RegistryList => registry.list(who, -1, name, true).await.map(drop),
                    _ => registry.retire(who, name, &"r".repeat(2_000)).await.map(drop),
                };
                assert_is(call(&nobody).await, Condition::Unauthenticated);
                let answer = call(&who).await;
                if action == allowed {
                    let denied = answer.err().map(|error| error.kind()) == Some(ErrorKind::Denied);
                    assert!(!denied, "{action:?} {name:?}");
                } else {
                    assert_is(answer, Condition::PermissionDenied);
                }
                assert_eq!(asked.seen.lock().unwrap().pop(), Some((action, method)));
            }
        }
        assert!(asked.seen.lock().unwrap().is_empty(), "each call asks once");
    }
    assert_eq!(first.get("agent").await.unwrap().state, HarnessState::Active);
}
