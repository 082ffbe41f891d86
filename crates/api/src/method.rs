//! Full names of the methods of every service, as authorisers, logs and metrics
//! see them. A call that does not come over a wire has the name of the method
//! that it would have come in by.
#![expect(missing_docs, reason = "the values are the documentation")]

pub const CREATE_SESSION: &str = "/agentsessions.v1.Sessions/CreateSession";
pub const GET_SESSION: &str = "/agentsessions.v1.Sessions/GetSession";
pub const LIST_SESSIONS: &str = "/agentsessions.v1.Sessions/ListSessions";
pub const DELETE_SESSION: &str = "/agentsessions.v1.Sessions/DeleteSession";
pub const EXEC: &str = "/agentsessions.v1.Sessions/Exec";
pub const REPLAY: &str = "/agentsessions.v1.Sessions/Replay";
pub const APPROVE: &str = "/agentsessions.v1.Sessions/Approve";
pub const CANCEL: &str = "/agentsessions.v1.Sessions/Cancel";
pub const SUSPEND: &str = "/agentsessions.v1.Sessions/Suspend";
pub const RESUME: &str = "/agentsessions.v1.Sessions/Resume";
pub const FORK: &str = "/agentsessions.v1.Sessions/Fork";

pub const REGISTER_HARNESS: &str = "/agentsessions.v1.HarnessRegistry/RegisterHarness";
pub const GET_HARNESS: &str = "/agentsessions.v1.HarnessRegistry/GetHarness";
pub const LIST_HARNESSES: &str = "/agentsessions.v1.HarnessRegistry/ListHarnesses";
pub const RETIRE_HARNESS: &str = "/agentsessions.v1.HarnessRegistry/RetireHarness";

pub const DESCRIBE: &str = "/mainspring.v1.Operations/Describe";
pub const FOLLOW: &str = "/mainspring.v1.Operations/Follow";
/// Resume as a stream of what it records.
pub const RESUME_STREAM: &str = "/mainspring.v1.Operations/Resume";
pub const FIND: &str = "/mainspring.v1.Operations/Find";
pub const RESOLVE: &str = "/mainspring.v1.Operations/Resolve";
pub const VERIFY: &str = "/mainspring.v1.Operations/Verify";
pub const EXPORT: &str = "/mainspring.v1.Operations/Export";
pub const IMPORT: &str = "/mainspring.v1.Operations/Import";

/// Served on the operators' listener only.
pub const ADOPT: &str = "/mainspring.v1.Administration/Adopt";
