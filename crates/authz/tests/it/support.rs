//! Every question that can be asked.

use mainspring_api::{
    Action, AuthorizeRequest, Authorizer, AuthzError, CallerIdentity, Owner, SessionUid,
};

/// Every action.
pub(crate) const ACTIONS: [Action; 16] = [
    Action::Read,
    Action::Exec,
    Action::Fork,
    Action::Suspend,
    Action::Resume,
    Action::Delete,
    Action::Cancel,
    Action::Create,
    Action::Approve,
    Action::Mint,
    Action::List,
    Action::RegistryRead,
    Action::RegistryList,
    Action::RegistryRegister,
    Action::RegistryRetire,
    Action::Adopt,
];

/// What owners may do to their sessions.
pub(crate) const OWNED: [Action; 7] = [
    Action::Read,
    Action::Exec,
    Action::Fork,
    Action::Suspend,
    Action::Resume,
    Action::Delete,
    Action::Cancel,
];

/// What a list may allow.
pub(crate) const LISTED: [Action; 8] = [
    Action::Create,
    Action::List,
    Action::Approve,
    Action::Adopt,
    Action::RegistryRead,
    Action::RegistryList,
    Action::RegistryRegister,
    Action::RegistryRetire,
];

pub(crate) const ISSUER: &str = "https://id.example";

pub(crate) fn identity(issuer: &str, subject: &str) -> CallerIdentity {
    CallerIdentity { issuer: issuer.to_owned(), subject: subject.to_owned() }
}

pub(crate) fn alice() -> CallerIdentity {
    identity(ISSUER, "alice")
}

/// One question: who, whether there is a session, and its owner.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) caller: Option<CallerIdentity>,
    pub(crate) has_session: bool,
    pub(crate) owner: Option<CallerIdentity>,
}

/// Every sort of caller and owner, also those that nearly are alice.
pub(crate) fn questions() -> Vec<Question> {
    let mut people: Vec<_> = [
        (ISSUER, "alice"),
        (ISSUER, "bob"),
        (ISSUER, "Alice"),
        (ISSUER, "alice "),
        ("https://id.example/", "alice"),
        ("https://other.example", "alice"),
        ("https://id.examplealice", ""),
        ("", "https://id.examplealice"),
        ("", "alice"),
        (ISSUER, ""),
        ("", ""),
        ("alice", ISSUER),
    ]
    .map(|(issuer, subject)| Some(identity(issuer, subject)))
    .into();
    people.push(None);
    let mut questions = Vec::new();
    for caller in &people {
        for owner in &people {
            for has_session in [true, false] {
                let (caller, owner) = (caller.clone(), owner.clone());
                questions.push(Question { caller, has_session, owner });
            }
        }
    }
    questions
}

/// The answer to one question.
pub(crate) async fn allowed(
    policy: &dyn Authorizer,
    action: Action,
    question: &Question,
) -> Result<(), AuthzError> {
    let session = SessionUid::new("s-1").unwrap();
    let owner = question
        .owner
        .as_ref()
        .map(|owner| Owner { issuer: owner.issuer.clone(), subject: owner.subject.clone() });
    let request = AuthorizeRequest {
        caller: question.caller.as_ref(),
        action,
        session: question.has_session.then_some(&session),
        owner: owner.as_ref(),
        method: "/agentsessions.v1.Sessions/Exec",
    };
    policy.authorize(request).await
}

/// Asks everything, and compares with what is expected.
pub(crate) async fn check(policy: &dyn Authorizer, expected: impl Fn(Action, &Question) -> bool) {
    let mut yes = 0;
    for action in ACTIONS {
        for question in questions() {
            let answer = allowed(policy, action, &question).await;
            let expected = expected(action, &question);
            yes += usize::from(expected);
            match answer {
                Ok(()) => assert!(expected, "{action:?} {question:?} was allowed"),
                Err(AuthzError::Denied) => assert!(!expected, "{action:?} {question:?} was denied"),
                Err(error) => panic!("{action:?} {question:?}: {error}"),
            }
        }
    }
    assert!(yes > 0, "something is allowed");
}
