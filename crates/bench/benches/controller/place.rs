//! A journal of one length that turns are run on, beside a bare engine that
//! holds the same rows.

use std::sync::Arc;

use anyhow::Result;
use mainspring_api::{Harness, SessionUid};
use mainspring_bench::run::peer::Bare;
use mainspring_bench::run::store::Store;
use mainspring_bench::run::twin::Tap;
use mainspring_bench::run::workload::now;
use mainspring_controller::{Controller, Journal};
use mainspring_eventlog::{EventLog, Level};
use tempfile::TempDir;

use crate::Plan;
use crate::turns::{Agent, Template, append, controller, create, execution, turn};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A new turn.
    Exec,
    /// The rest of a turn that was cut after its model call.
    Resume,
}

/// A session of one length, in a store and in its peer.
pub(crate) struct Place {
    pub(crate) length: u64,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) uid: SessionUid,
    controller: Controller,
    tap: Arc<Tap>,
    bare: Box<dyn Bare>,
    agent: Arc<dyn Harness>,
    sessions: u64,
    cuts: u64,
    _dir: TempDir,
}

impl Place {
    pub(crate) async fn filled(
        plan: &Plan,
        store: Store,
        template: &Template,
        length: u64,
    ) -> Result<Self> {
        let dir = plan.folder()?;
        let tap = Arc::new(Tap::default());
        let log = store.open_tapped(dir.path(), &tap)?;
        let mut bare = store.peer().open(dir.path())?;
        let (uid, controller) = session(&log, &tap, &mut *bare, template, length, 0).await?;
        let agent = Arc::new(Agent);
        Ok(Self { length, log, uid, controller, tap, bare, agent, sessions: 1, cuts: 0, _dir: dir })
    }

    /// A session of this length more, in the store and in its peer.
    pub(crate) async fn next_session(&mut self, template: &Template) -> Result<()> {
        let (log, number) = (&self.log, self.sessions);
        let made = session(log, &self.tap, &mut *self.bare, template, self.length, number).await?;
        (self.uid, self.controller) = made;
        self.sessions += 1;
        Ok(())
    }

    /// Does it on the store, and commits the same to the peer; the microseconds of both.
    pub(crate) async fn measure(&mut self, what: What, template: &Template) -> Result<(f64, f64)> {
        if what == What::Resume {
            self.cut(template).await?;
        }
        let begun = now();
        go(what, &self.controller, &self.agent).await?;
        let whole = begun.elapsed().as_secs_f64() * 1e6;
        // Once more, for what it puts: the tap would be on the clock.
        if what == What::Resume {
            self.cut(template).await?;
        }
        self.tap.keep(true);
        go(what, &self.controller, &self.agent).await?;
        self.tap.keep(false);
        let txns = self.tap.take();
        let begun = now();
        for txn in &txns {
            self.bare.commit(std::slice::from_ref(txn))?;
        }
        Ok((whole, begun.elapsed().as_secs_f64() * 1e6))
    }

    /// Appends a turn that was cut after its model call.
    pub(crate) async fn cut(&mut self, template: &Template) -> Result<()> {
        self.cuts += 1;
        let id = execution(u64::MAX - self.cuts)?;
        let head = self.log.head(&self.uid, Level::Committed).await?;
        let fence = self.controller.fence();
        append(&*self.log, &self.uid, head, fence, template.cut(&id)).await?;
        Ok(())
    }

    /// Resumes as a host that has not seen the journal yet; the microseconds that it took.
    pub(crate) async fn resume_cold(&mut self, template: &Template) -> Result<f64> {
        self.cut(template).await?;
        let journal = Journal::new(Arc::clone(&self.log), self.uid.clone());
        self.controller = controller(journal).await?;
        let begun = now();
        resume(&self.controller, &self.agent).await?;
        Ok(begun.elapsed().as_secs_f64() * 1e6)
    }
}

async fn go(what: What, controller: &Controller, agent: &Arc<dyn Harness>) -> Result<()> {
    match what {
        What::Exec => drop(controller.exec(agent, turn()).await?),
        What::Resume => resume(controller, agent).await?,
    }
    Ok(())
}

async fn resume(controller: &Controller, agent: &Arc<dyn Harness>) -> Result<()> {
    let resumed = controller.resume(agent, None).await;
    anyhow::ensure!(resumed.resumed, "there was nothing to resume");
    Ok(resumed.result?)
}

/// A session of `length` records, verified, with the peer's rows beside it.
async fn session(
    log: &Arc<dyn EventLog>,
    tap: &Tap,
    bare: &mut dyn Bare,
    template: &Template,
    length: u64,
    number: u64,
) -> Result<(SessionUid, Controller)> {
    tap.keep(true);
    let uid = create(&**log, &format!("bench-{number}")).await?;
    template.fill(&**log, &uid, length).await?;
    tap.keep(false);
    for txn in tap.take() {
        bare.commit(std::slice::from_ref(&txn))?;
    }
    let journal = Journal::new(Arc::clone(log), uid.clone());
    journal.open().await?;
    Ok((uid, controller(journal).await?))
}
