//! The numbered cases of the controller, each in every cell of a matrix: the
//! harness in process or behind a unix socket, the journal in memory, in a
//! redb file or, with the harness in process, in a fjall folder.
//!
//! A case is an async function over a [`support::Fixture`]; `matrix!` at the
//! end of each file makes a test of it in each cell. What a cell may not do is
//! change a body: a case asserts the same records in all of them, and `parity`
//! compares the hashes.

#[macro_use]
mod support;

mod a_live;
mod a_tools;
mod b_replay;
mod b_reports;
mod c_history;
mod cancel;
mod crash;
mod crash_tools;
mod cut_tools;
mod d_evidence;
mod d_start;
mod e_cuts;
mod e_more_cuts;
mod f_tools;
mod g_identity;
mod golden;
mod h_guard;
mod h_park;
mod i_evidence;
mod i_inspect;
mod j_decide;
mod j_refuse;
mod journals;
mod k_faults;
mod k_gate;
mod k_recovery;
mod l_bound;
mod l_gates;
mod l_identity;
mod latches;
mod latches_gate;
mod m_fork;
mod m_intent;
mod misbehaved;
mod n_instance;
mod o_tampered;
mod p_legacy;
mod p_tools;
mod parity;
mod q_streams;
mod r_usage;
mod relay;
mod replay_many;
mod reports_history;
mod reports_turns;
mod resolve;
mod s_policy;
mod s_turns;
mod settle;
mod slow_store;
mod started;
mod w_reference;
mod x_logs;
mod x_scope;
