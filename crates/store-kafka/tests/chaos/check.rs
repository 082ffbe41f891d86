//! What must hold when the race is over.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{AppendId, Fence, Head};
use mainspring_eventlog::{EventLog as _, Level, StoredRecord};
use mainspring_store_kafka::{KafkaConfig, KafkaStore};

use crate::clock::{now, since};
use crate::cluster::Shape;
use crate::journals::{Journal, collect, fresh, with_view};
use crate::ledger::{Answer, Append, Entries, Mint, Told};
use crate::plan::{SESSIONS, session};

/// Appends that are sent again at a time.
const AT_A_TIME: usize = 64;
/// How often one is sent again before it counts as never judged.
const TRIES_MAX: usize = 50;
/// Pause before that.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Violations that are shown.
const SHOWN: usize = 20;

/// All that hosts tried, of all incarnations.
struct Race {
    appends: Vec<Told<Append>>,
    mints: Vec<Told<Mint>>,
}

/// What does not hold.
#[derive(Default)]
struct Violations(Vec<String>);

impl Violations {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

/// Compares all hosts with one another, and with what they wrote down.
///
/// # Panics
/// When something does not hold.
pub(crate) async fn all(
    config: &KafkaConfig,
    shape: Shape,
    views: &[PathBuf],
    ledgers: &[PathBuf],
) {
    let began = now();
    let mut race = Race { appends: Vec::new(), mints: Vec::new() };
    for ledger in ledgers {
        let Entries { appends, mints } = Entries::read(ledger);
        race.appends.extend(appends.into_values());
        race.mints.extend(mints.into_values());
    }
    let mut violations = Violations::default();
    let judge = fresh(config).await;
    race.ask_again(&judge, &mut violations).await;
    let mut stores = vec![judge, fresh(config).await];
    for view in views {
        stores.push(with_view(config, view).await);
    }
    let journals = collect(&stores[0]).await;
    for (number, store) in stores.iter().enumerate().skip(1) {
        for (session, (ours, theirs)) in journals.iter().zip(collect(store).await).enumerate() {
            violations.check(*ours == theirs, || {
                format!("session {session} is another on host {number} of the check")
            });
        }
    }
    violations.check(agree(&stores).await, || "the digests differ from host to host".to_owned());
    for (session, journal) in journals.iter().enumerate() {
        race.compare(session, journal, shape, &mut violations);
    }
    race.report(&journals);
    eprintln!("checked {} hosts, {:?}", stores.len(), since(began));
    let Violations(found) = violations;
    let shown = found.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(found.is_empty(), "{} violations:\n{shown}", found.len());
}

/// Whether all hosts come to the same digests, once they are at the same place.
async fn agree(stores: &[KafkaStore]) -> bool {
    for _ in 0..TRIES_MAX {
        let mut digests = Vec::with_capacity(stores.len());
        for store in stores {
            digests.push(store.digests().expect("a view that is open can be read"));
        }
        let at = |number: usize| digests[number].iter().map(|(next, _)| *next);
        // A host may have put something into the log while others were asked.
        if (1..digests.len()).all(|number| at(0).eq(at(number))) {
            return digests.iter().all(|other| *other == digests[0]);
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    false
}

impl Race {
    /// Sends every append again that was ever sent. Who never learned what
    /// became of one learns it so, and what was said once stays true.
    async fn ask_again(&mut self, store: &KafkaStore, violations: &mut Violations) {
        let sent = self.appends.iter_mut().filter(|append| append.outcome() != Answer::Refused);
        futures_util::stream::iter(sent)
            .for_each_concurrent(AT_A_TIME, |append| async {
                let answer = settle(store, &append.what).await;
                append.answers.push((answer, now()));
            })
            .await;
        for append in &self.appends {
            violations.check(append.outcome() != Answer::Unknown, || {
                format!("append {} cannot be settled", append.what.id)
            });
        }
    }

    fn of(&self, session: usize) -> impl Iterator<Item = &Told<Append>> {
        self.appends.iter().filter(move |append| append.what.session == session)
    }

    fn compare(&self, session: usize, journal: &Journal, shape: Shape, found: &mut Violations) {
        let chain = Chain::of(journal);
        for append in self.of(session) {
            chain.has_if_told(append, found);
        }
        let known: HashMap<AppendId, &Append> =
            self.of(session).map(|append| (append.what.id, &append.what)).collect();
        for (id, places) in &chain.batches {
            found.check(known.contains_key(id), || format!("nobody tried the append {id}"));
            found.check(places.len() == 1, || format!("append {id} is there twice: {places:?}"));
        }
        self.reads_are_fresh(session, shape, found);
        self.fences_hold(session, journal, found);
    }

    /// Who read a head after an append was acknowledged saw at least that.
    ///
    /// A broker that was cut off from the others may answer with an end that it
    /// does not know to be old; a strict read asks the log itself.
    fn reads_are_fresh(&self, session: usize, shape: Shape, found: &mut Violations) {
        let mut acknowledged: Vec<(u64, u64)> = self
            .of(session)
            .filter_map(|append| append.ok_at().map(|(head, at)| (at, head.seq.get())))
            .collect();
        acknowledged.sort_unstable();
        let mut highest = 0;
        for (_, seq) in &mut acknowledged {
            highest = highest.max(*seq);
            *seq = highest;
        }
        for Told { what, .. } in self.of(session) {
            let before = acknowledged.partition_point(|(at, _)| *at < what.read_at);
            let known = before.checked_sub(1).map_or(0, |last| acknowledged[last].1);
            let said = || {
                let (id, seq, level) = (what.id, what.base.seq, what.level);
                format!("append {id} read {seq} ({level:?}) after {known} was acknowledged")
            };
            let is_fresh = what.base.seq.get() >= known;
            if shape == Shape::One || what.level == Level::Strict {
                found.check(is_fresh, said);
            } else if !is_fresh {
                eprintln!("by a broker that was cut off: {}", said());
            }
        }
    }

    /// Each fence was given to one host alone, and no older one counts after it.
    fn fences_hold(&self, session: usize, journal: &Journal, found: &mut Violations) {
        let mints = || self.mints.iter().filter(|mint| mint.what.session == session);
        let mut given: BTreeMap<Fence, AppendId> = BTreeMap::new();
        for Told { what: Mint { id, current, at, .. }, .. } in
            mints().filter(|mint| mint.ok_at().is_some())
        {
            let fence = current.next();
            let other = given.insert(fence, *id);
            found.check(other.is_none_or(|other| other == *id), || {
                format!("fence {fence} of session {session} was given twice")
            });
            for record in at.iter().flat_map(|_| &journal.records) {
                let after = at.is_some_and(|at| record.seq > at.seq);
                found.check(after == (record.fence >= fence), || {
                    let (seq, under) = (record.seq, record.fence);
                    format!("session {session}: {seq} is under {under}; {fence} began at {at:?}")
                });
            }
        }
        for fence in 1..=journal.row.fence.fence.get() {
            // One that was overtaken before it was judged again may have been
            // told that the fence has moved on: its own is not in force any more.
            let may_be_of = |mint: &Told<Mint>| {
                let settled = mint.answers.iter().any(|(answer, _)| answer.is_settled());
                let unknown = mint.answers.iter().any(|(answer, _)| *answer == Answer::Unknown);
                mint.what.current.next().get() == fence && (unknown || !settled)
            };
            found.check(given.contains_key(&Fence::new(fence)) || mints().any(may_be_of), || {
                format!("fence {fence} of session {session} was given to nobody")
            });
        }
        if let (Some(id), Some(holder)) =
            (given.get(&journal.row.fence.fence), &journal.row.fence.holder)
        {
            found.check(holder.id == id.to_string(), || {
                format!("session {session} is held by {}, not by who minted last", holder.name)
            });
        }
    }

    fn report(&self, journals: &[Journal]) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for append in &self.appends {
            // The last answer is that of the check.
            let own = append.answers.len().saturating_sub(1);
            let settled = append.answers[..own].iter().any(|(answer, _)| answer.is_settled());
            let name = match append.outcome() {
                Answer::Ok(_) => "applied",
                Answer::Conflict(_) => "conflict",
                Answer::Fenced => "fenced",
                Answer::Refused => "never sent",
                Answer::Unknown => "unknown",
            };
            *counts.entry(name).or_default() += 1;
            if append.answers.iter().any(|(answer, _)| *answer == Answer::Unknown) {
                *counts.entry("of these, unknown at first").or_default() += 1;
            }
            if !settled && append.outcome() != Answer::Refused {
                *counts.entry("of these, settled by the check alone").or_default() += 1;
            }
            if append.what.fence < append.what.in_force {
                *counts.entry("of these, under an old fence").or_default() += 1;
            }
        }
        let records: usize = journals.iter().map(|journal| journal.records.len()).sum();
        let (appends, mints) = (self.appends.len(), self.mints.len());
        eprintln!(
            "{SESSIONS} sessions, {records} records, {appends} appends, {mints} mints: {counts:?}"
        );
    }
}

/// Sends an append again, until it is judged.
async fn settle(store: &KafkaStore, append: &Append) -> Answer {
    let batch = append.batch();
    for _ in 0..TRIES_MAX {
        let told = store.append(&session(append.session), append.id, append.fence, &batch).await;
        let answer = match &told {
            Ok(head) => Answer::Ok(*head),
            Err(error) => {
                Answer::of(error).unwrap_or_else(|| panic!("append {}: {error}", append.id))
            }
        };
        if answer.is_settled() {
            return answer;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    Answer::Unknown
}

/// A journal, by what is looked for in it.
struct Chain<'a> {
    records: &'a [StoredRecord],
    /// Where the batches of each append begin.
    batches: HashMap<AppendId, Vec<usize>>,
}

impl<'a> Chain<'a> {
    fn of(journal: &'a Journal) -> Self {
        let mut batches: HashMap<AppendId, Vec<usize>> = HashMap::new();
        for (place, record) in journal.records.iter().enumerate() {
            if let Some(id) = record.notes.get("append_id") {
                let id = AppendId::from_hex(id).expect("the note is an id");
                batches.entry(id).or_default().push(place);
            }
        }
        Self { records: &journal.records, batches }
    }

    /// Whether the journal was ever at this head.
    fn was_at(&self, head: Head) -> bool {
        let Some(last) = head.seq.get().checked_sub(1) else { return head == Head::EMPTY };
        let record = usize::try_from(last).ok().and_then(|last| self.records.get(last));
        record.is_some_and(|record| record.head() == head)
    }

    /// An append is there, whole, when it was said to be, and only then; all
    /// that was ever said of it agrees, and so do the heads that were seen.
    fn has_if_told(&self, Told { what, answers }: &Told<Append>, found: &mut Violations) {
        let id = what.id;
        let batch = what.batch();
        let place = self.batches.get(&id).and_then(|places| places.first()).copied();
        found.check(self.was_at(what.base), || format!("append {id} read a head that never was"));
        let mut applied = false;
        for (answer, _) in answers {
            match answer {
                Answer::Ok(head) => {
                    applied = true;
                    found.check(place.is_some() && *head == batch.head(), || {
                        format!("append {id} was acknowledged at {head} and is at {place:?}")
                    });
                }
                Answer::Conflict(_) | Answer::Fenced => {
                    found.check(place.is_none(), || {
                        format!("append {id} was refused ({answer:?}) and is at {place:?}")
                    });
                }
                Answer::Refused | Answer::Unknown => {}
            }
            if let Answer::Conflict(head) = answer {
                found.check(self.was_at(*head), || format!("append {id} was told of no head"));
            }
        }
        found.check(place.is_none() || applied, || format!("append {id} is there, unasked"));
        found.check(!applied || what.fence >= what.in_force, || {
            format!("append {id} counts under {}, and {} was in force", what.fence, what.in_force)
        });
        let Some(place) = place else { return };
        let there = self.records[place..].iter().take(batch.len());
        let same = there.zip(batch.stored()).filter(|(record, stored)| {
            record.head() == stored.head()
                && record.canonical == stored.canonical
                && record.fence == what.fence
        });
        found.check(same.count() == batch.len(), || format!("append {id} is there in part"));
    }
}
