//! Runs, replays, resumes and forks the journal of one session.
