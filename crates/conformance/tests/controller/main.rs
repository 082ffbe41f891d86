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
mod h_guard;
mod journals;
mod l_bound;
mod l_identity;
mod m_fork;
mod misbehaved;
mod p_legacy;
mod parity;
mod q_streams;
mod r_usage;
mod relay;
mod settle;
mod slow_store;
mod w_reference;
mod x_logs;
