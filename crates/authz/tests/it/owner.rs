//! The built-in policies.

use mainspring_api::Action;
use mainspring_authz::{Allowlist, OwnerAllowlistPolicy, OwnerPolicy};

use crate::support::{ACTIONS, LISTED, OWNED, alice, check, identity};

#[tokio::test]
async fn an_owner_may_do_seven_things_to_a_session_of_its_own() {
    let is_the_same = |question: &crate::support::Question| {
        question.caller == question.owner
            && question
                .caller
                .as_ref()
                .is_some_and(|caller| !caller.issuer.is_empty() && !caller.subject.is_empty())
    };
    check(&OwnerPolicy, |action, question| {
        OWNED.contains(&action) && question.has_session && is_the_same(question)
    })
    .await;
}

#[tokio::test]
async fn a_list_allows_exactly_whom_it_names_for_exactly_that_action() {
    for listed in LISTED {
        let list = Allowlist::default().allow(listed, alice());
        let policy = OwnerAllowlistPolicy::new(list);
        check(&policy, |action, question| {
            let owner = question.has_session
                && question.caller.is_some()
                && question.caller == question.owner
                && question
                    .caller
                    .as_ref()
                    .is_some_and(|caller| !caller.issuer.is_empty() && !caller.subject.is_empty());
            (OWNED.contains(&action) && owner)
                || (action == listed && question.caller == Some(alice()))
        })
        .await;
    }
}

#[tokio::test]
async fn a_list_for_any_other_action_and_for_nobody_is_ignored() {
    let mut list = Allowlist::default();
    for action in ACTIONS.into_iter().filter(|action| !LISTED.contains(action)) {
        for caller in [alice(), identity("https://other.example", "alice")] {
            list = list.allow(action, caller);
        }
    }
    // Half an identity is nobody's, whatever the list says.
    for action in LISTED {
        list = list.allow(action, identity("", "alice")).allow(action, identity("", ""));
        list = list.allow(action, identity(crate::support::ISSUER, ""));
    }
    let policy = OwnerAllowlistPolicy::new(list);
    for action in ACTIONS {
        for question in crate::support::questions() {
            let with = crate::support::allowed(&policy, action, &question).await.is_ok();
            let without = crate::support::allowed(&OwnerPolicy, action, &question).await.is_ok();
            assert_eq!(with, without, "{action:?} {question:?}");
        }
    }
    assert!(!LISTED.contains(&Action::Mint));
}
