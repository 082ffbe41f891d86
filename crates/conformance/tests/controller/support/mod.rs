//! Cells, sessions, harnesses, models and faults for the cases.

mod cell;
mod fixture;
mod model;
mod observer;
mod probe;
pub(crate) mod raw;
mod tools;

pub(crate) mod between;
pub(crate) mod engine;
pub(crate) mod gates;

pub(crate) use cell::{Cell, Kept, Reach, run, run_on_one_thread};
#[allow(unused_imports, reason = "for tests of other stores, which include these cases")]
pub(crate) use cell::{ELSEWHERE, Opening};
pub(crate) use fixture::open_log;
pub(crate) use fixture::{Fixture, Placed, driven, parked, refused, sink_error, turn};
pub(crate) use model::TestModel;
pub(crate) use observer::{Told, Watcher};
pub(crate) use probe::{Answers, Probe, ask, gated, mediated};
pub(crate) use tools::TestTools;

/// Makes a `#[test]` of each case in each of its cells. `everywhere` is all
/// of them; `in_process` leaves out the wire. The runner is one of `cell`'s.
macro_rules! matrix {
    (
        $run:ident:
        everywhere { $(#[test] fn $all:ident;)* }
        in_process { $(#[test] fn $here:ident;)* }
    ) => {
        matrix! { @cell $run in_process_memory InProcess Memory: $($all)* $($here)* }
        matrix! { @cell $run in_process_redb InProcess Redb: $($all)* $($here)* }
        matrix! { @cell $run in_process_fjall InProcess Fjall: $($all)* $($here)* }
        matrix! { @cell $run wire_memory Wire Memory: $($all)* }
        matrix! { @cell $run wire_redb Wire Redb: $($all)* }
    };
    ($run:ident: everywhere { $($all:tt)* }) => {
        matrix! { $run: everywhere { $($all)* } in_process {} }
    };
    ($run:ident: in_process { $(#[test] fn $here:ident;)* }) => {
        matrix! { @cell $run in_process_memory InProcess Memory: $($here)* }
        matrix! { @cell $run in_process_redb InProcess Redb: $($here)* }
        matrix! { @cell $run in_process_fjall InProcess Fjall: $($here)* }
    };
    (@cell $run:ident $module:ident $reach:ident $kept:ident: $($case:ident)*) => {
        mod $module {
            use crate::support::{Cell, Kept, Reach, $run};

            const CELL: Cell = Cell { reach: Reach::$reach, kept: Kept::$kept };

            $(
                #[test]
                fn $case() {
                    $run(CELL, super::$case);
                }
            )*
        }
    };
}
