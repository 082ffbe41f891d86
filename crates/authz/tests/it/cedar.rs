//! Policies in Cedar.

use mainspring_api::Action;
use mainspring_authz::{
    Allowlist, CedarError, CedarPolicy, OwnerAllowlistPolicy, OwnerPolicy, POLICIES_BYTES_MAX,
};

use crate::support::{ACTIONS, LISTED, Question, alice, allowed, check, identity, questions};

const OWNER: &str = r#"
    @id("owners")
    permit(
        principal,
        action in [
            Action::"read", Action::"exec", Action::"fork", Action::"suspend",
            Action::"resume", Action::"delete", Action::"cancel"
        ],
        resource is Session
    ) when { resource has owner && resource.owner == principal };
"#;

/// Allows alice an action, by attributes or by id.
fn listed(action: Action, by_id: bool) -> String {
    let action = action.name();
    match by_id {
        true => format!(
            r#"permit(
                principal == User::"[\"https://id.example\",\"alice\"]",
                action == Action::"{action}", resource
            );"#
        ),
        false => format!(
            r#"permit(principal, action == Action::"{action}", resource)
            when {{ principal.issuer == "https://id.example" && principal.subject == "alice" }};"#
        ),
    }
}

#[tokio::test]
async fn the_built_in_policies_can_be_written_in_cedar() {
    let owner = CedarPolicy::parse(OWNER).unwrap();
    for action in ACTIONS {
        for question in questions() {
            let cedar = allowed(&owner, action, &question).await.is_ok();
            let built_in = allowed(&OwnerPolicy, action, &question).await.is_ok();
            assert_eq!(cedar, built_in, "{action:?} {question:?}");
        }
    }
    for by_id in [true, false] {
        let mut text = OWNER.to_owned();
        let mut list = Allowlist::default();
        for action in LISTED {
            text.push_str(&listed(action, by_id));
            list = list.allow(action, alice());
        }
        let (cedar, list) = (CedarPolicy::parse(&text).unwrap(), OwnerAllowlistPolicy::new(list));
        for action in ACTIONS {
            // Of what is about a session, Cedar is only asked when there is one.
            let is_about_one = matches!(action, Action::Approve | Action::Adopt);
            let asked = |question: &Question| !is_about_one || question.has_session;
            for question in questions().into_iter().filter(asked) {
                let cedar = allowed(&cedar, action, &question).await.is_ok();
                let built_in = allowed(&list, action, &question).await.is_ok();
                assert_eq!(cedar, built_in, "{action:?} {question:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_nothing_permits_is_denied() {
    let policy = CedarPolicy::parse(&listed(Action::List, true)).unwrap();
    check(&policy, |action, question| action == Action::List && question.caller == Some(alice()))
        .await;
}

#[tokio::test]
async fn a_policy_that_fails_denies_also_what_another_permits() {
    let everything = "permit(principal, action, resource);";
    // It fits the schema, and its arithmetic does not hold.
    let fails = r#"
        @id("fragile")
        forbid(principal, action == Action::"list", resource)
        when { 9223372036854775807 + (if principal.subject == "alice" then 1 else 0) == 0 };
    "#;
    let policy = CedarPolicy::parse(&format!("{everything}{fails}")).unwrap();
    let ask = |subject: &str| Question {
        caller: Some(identity("https://id.example", subject)),
        has_session: false,
        owner: None,
    };
    assert!(allowed(&policy, Action::List, &ask("bob")).await.is_ok());
    assert!(allowed(&policy, Action::List, &ask("alice")).await.is_err());
    assert!(allowed(&policy, Action::Create, &ask("alice")).await.is_ok());
}

#[tokio::test]
async fn the_method_and_the_owner_can_be_asked_for() {
    let text = r#"
        permit(principal, action == Action::"read", resource)
        when { context.method == "/agentsessions.v1.Sessions/Exec"
            && resource has owner && resource.owner.subject == "bob" };
        forbid(principal, action, resource) unless { principal.issuer == "https://id.example" };
    "#;
    let policy = CedarPolicy::parse(text).unwrap();
    let bob = identity("https://id.example", "bob");
    check(&policy, |action, question| {
        action == Action::Read
            && question.has_session
            && question.owner.as_ref() == Some(&bob)
            && question.caller.as_ref().is_some_and(|caller| {
                caller.issuer == "https://id.example" && !caller.subject.is_empty()
            })
    })
    .await;
}

#[test]
fn a_policy_that_cannot_be_is_named() {
    let parse = |text: &str| CedarPolicy::parse(text).unwrap_err();
    assert!(matches!(parse("permit("), CedarError::Syntax(_)));
    assert!(matches!(parse("// nothing"), CedarError::NoPolicy));
    let invalid = [
        ("policy1", r#"permit(principal, action == Action::"reed", resource);"#),
        (
            "typo",
            r#"@id("typo") permit(principal, action, resource) when { principal.sub == "" };"#,
        ),
        (
            "ownerless",
            r#"@id("ownerless") permit(principal, action == Action::"read", resource)
                when { resource.owner == principal };"#,
        ),
        ("policy1", r#"permit(principal is Robot, action, resource);"#),
        ("policy1", r#"permit(principal, action, resource) when { context.method == 1 };"#),
    ];
    for (name, text) in invalid {
        let error = parse(&format!("{OWNER}{text}"));
        let CedarError::Invalid { policy, .. } = &error else { panic!("{text}: {error}") };
        assert_eq!(policy, name);
        assert!(error.to_string().contains(name), "{error}");
    }
    let template = r#"@id("slot") permit(principal == ?principal, action, resource);"#;
    let CedarError::Template { policy } = parse(template) else { panic!("a template") };
    assert_eq!(policy, "slot");
    assert!(matches!(parse(&" ".repeat(POLICIES_BYTES_MAX + 1)), CedarError::TooLarge));
}

#[tokio::test]
async fn policies_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policies.cedar");
    assert!(matches!(CedarPolicy::load(&path), Err(CedarError::File { .. })));
    std::fs::write(&path, OWNER).unwrap();
    let policy = CedarPolicy::load(&path).unwrap();
    let own = Question { caller: Some(alice()), has_session: true, owner: Some(alice()) };
    assert!(allowed(&policy, Action::Read, &own).await.is_ok());
    std::fs::write(&path, " ".repeat(POLICIES_BYTES_MAX + 1)).unwrap();
    assert!(matches!(CedarPolicy::load(&path), Err(CedarError::TooLarge)));
}
