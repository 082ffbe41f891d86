//! What the writers of the model send.

use mainspring_api::Head;
use mainspring_eventlog::replica::Terms;

use super::Script;
use crate::judge::samples::{
    acquire, append, begin, create, delete, fork, head, mint, note, publish, put, stage, uid,
    unstage, update,
};

fn script(
    name: &'static str,
    before: &[Terms],
    messages: impl IntoIterator<Item = (&'static str, Terms)>,
) -> Script {
    Script { name, before: before.to_vec(), messages: messages.into_iter().collect() }
}

/// Appends and mints on one session.
pub(super) fn journals() -> Vec<Script> {
    const EMPTY: Head = Head::EMPTY;
    let (a1, a2) = (head(1, b'a'), head(2, b'a'));
    let (b1, b2, c1, c2) = (head(1, b'b'), head(2, b'b'), head(1, b'c'), head(2, b'c'));
    vec![
        script(
            "one writer is followed by the next",
            &[create("s")],
            [
                ("a-mint", mint(0)),
                ("a1", append(EMPTY, a1, 1)),
                ("a2", append(a1, a2, 1)),
                ("b-mint", mint(1)),
                ("b2", append(a1, b2, 2)),
                ("c1", append(EMPTY, c1, 0)),
            ],
        ),
        script(
            "three writers start with the same fence",
            &[create("s"), mint(0)],
            [
                ("a1", append(EMPTY, a1, 1)),
                ("a2", append(a1, a2, 1)),
                ("b1", append(EMPTY, b1, 1)),
                ("b2", append(b1, b2, 1)),
                ("c-mint", mint(1)),
                ("c2", append(b1, c2, 2)),
            ],
        ),
        script(
            "a fence is wanted only where the head has not moved",
            &[create("s")],
            [
                ("a-acquire", acquire(0, EMPTY)),
                ("a1", append(EMPTY, a1, 1)),
                ("b-acquire", acquire(1, a1)),
                ("b2", append(a1, b2, 2)),
                ("c-mint", mint(0)),
                ("c2", append(a1, c2, 1)),
            ],
        ),
        script(
            "two mint at once, and one comes late with an old fence",
            &[create("s"), mint(0)],
            [
                ("a-mint", mint(1)),
                ("b-mint", mint(1)),
                ("a1", append(EMPTY, a1, 2)),
                ("b1", append(EMPTY, b1, 1)),
                ("c-mint", mint(2)),
                ("c2", append(a1, c2, 3)),
            ],
        ),
    ]
}

/// Sessions and named rows, by version.
pub(super) fn rows() -> Vec<Script> {
    vec![
        script(
            "a session gets one owner",
            &[create("s")],
            [
                ("a-update", update(1, false)),
                ("a-owner", update(2, true)),
                ("b-owner", update(1, true)),
                ("b-update", update(2, false)),
                ("c-owner", update(3, true)),
            ],
        ),
        script(
            "a session is created and changed",
            &[],
            [
                ("a-create", create("s")),
                ("b-create", Terms::Create { session: uid("s"), owned: true }),
                ("a-owner", update(1, true)),
                ("b-update", update(1, false)),
                ("c-update", update(2, false)),
            ],
        ),
        script(
            "a named row",
            &[],
            [("a0", put(0)), ("b0", put(0)), ("a1", put(1)), ("c1", put(1)), ("b2", put(2))],
        ),
    ]
}

/// Notes that are added later.
pub(super) fn notes() -> Vec<Script> {
    let (a1, a2) = (head(1, b'a'), head(2, b'a'));
    vec![
        script(
            "two add a note to one record",
            &[create("s"), append(Head::EMPTY, a1, 0)],
            [
                ("a-note", note(1, 0, 0)),
                ("b-note", note(1, 0, 0)),
                ("b-next", note(1, 1, 1)),
                ("b-mint", mint(0)),
                ("c-next", note(1, 0, 1)),
            ],
        ),
        script(
            "a note needs its record",
            &[create("s"), mint(0)],
            [
                ("a1", append(Head::EMPTY, a1, 1)),
                ("a-note", note(1, 1, 0)),
                ("a2", append(a1, a2, 1)),
                ("b-note", note(2, 1, 0)),
                ("c-note", note(2, 1, 1)),
            ],
        ),
    ]
}

/// Forks, and what may be in their way.
pub(super) fn forks() -> Vec<Script> {
    let (a1, a2, b2) = (head(1, b'a'), head(2, b'a'), head(2, b'b'));
    vec![
        script(
            "two fork to the same child",
            &[create("s"), append(Head::EMPTY, a1, 0)],
            [
                ("a-fork", fork(1, &[("x", b'a')])),
                ("b-fork", fork(1, &[("y", b'b'), ("x", b'b')])),
                ("c-fork", fork(2, &[("y", b'c')])),
                ("a2", append(a1, a2, 0)),
                ("c-create", create("x")),
            ],
        ),
        script(
            "a deleted session is not forked",
            &[create("s"), append(Head::EMPTY, a1, 0)],
            [
                ("a-fork", fork(1, &[("x", b'a')])),
                ("b-delete", delete(a1, b2)),
                ("a2", append(a1, a2, 0)),
                ("c-fork", fork(2, &[("y", b'c')])),
                ("c-mint", mint(0)),
            ],
        ),
    ]
}

/// Imports that are begun, left, begun anew and published.
pub(super) fn imports() -> Vec<Script> {
    const EMPTY: Head = Head::EMPTY;
    let (a1, a2, b1) = (head(1, b'a'), head(2, b'a'), head(1, b'b'));
    vec![
        script(
            "an import is left and begun anew",
            &[begin(0)],
            [
                ("a1", stage(0, EMPTY, a1, 3)),
                ("a-unstage", unstage(0)),
                ("b-begin", begin(1)),
                ("b1", stage(1, EMPTY, b1, 4)),
                ("c1", stage(0, EMPTY, b1, 9)),
                ("b-publish", publish(1, b1)),
            ],
        ),
        script(
            "two go on with one import",
            &[],
            [
                ("a-begin", begin(0)),
                ("a1", stage(0, EMPTY, a1, 3)),
                ("a2", stage(0, a1, a2, 2)),
                ("b1", stage(0, EMPTY, b1, 5)),
                ("a-publish", publish(0, a2)),
            ],
        ),
        script(
            "the same is staged in two generations",
            &[begin(0), stage(0, EMPTY, a1, 1)],
            [
                ("a-publish", publish(0, a1)),
                ("b-unstage", unstage(0)),
                ("b-begin", begin(1)),
                ("b1", stage(1, EMPTY, a1, 1)),
                ("b2", stage(1, a1, a2, 1)),
            ],
        ),
        script(
            "the session is there before it is published",
            &[begin(0)],
            [
                ("a1", stage(0, EMPTY, a1, 1)),
                ("a-publish", publish(0, a1)),
                ("b-create", create("s")),
                ("b1", append(EMPTY, b1, 1)),
                ("c-unstage", unstage(0)),
            ],
        ),
    ]
}
