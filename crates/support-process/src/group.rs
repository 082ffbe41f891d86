//! A process with all that it started.

use rustix::process::{Pid, Signal, kill_process_group};

/// A process group, by the id of the process that leads or led it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessGroup(u32);

impl ProcessGroup {
    /// The group that the process `id` leads; 0 stands for none.
    #[must_use]
    pub fn led_by(id: u32) -> Self {
        Self(id)
    }

    /// The id of the process that leads or led it.
    #[must_use]
    pub fn leader(self) -> u32 {
        self.0
    }

    /// Asks every process of the group to end.
    pub fn terminate(self) {
        self.signal(Signal::TERM);
    }

    /// Kills every process of the group.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Signals every process of the group; an empty group is no error.
    ///
    /// The id stays taken while any member lives. It could name a stranger only
    /// if the group is empty and the machine ran through all process ids since
    /// the leader was reaped, which is moments ago wherever this is called.
    fn signal(self, signal: Signal) {
        let leader = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        if let Some(leader) = leader {
            let _ = kill_process_group(leader, signal);
        }
    }
}
