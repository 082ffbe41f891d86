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
mod b_replay;
mod c_history;
mod crash;
mod crash_tools;
mod d_evidence;
mod d_start;
mod e_cuts;
mod e_more_cuts;
mod golden;
mod h_guard;
mod i_evidence;
mod i_inspect;
mod j_decide;
mod j_refuse;
mod journals;
mod l_bound;
mod l_gates;
mod l_identity;
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
mod replay_many;
mod reports_history;
mod reports_turns;
mod s_policy;
mod s_turns;
mod settle;
mod slow_store;
mod w_reference;
mod x_logs;
mod x_scope;
