//! Progress of long work, on a terminal alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mainspring::eventlog::{OpenProgress, Recovering};

/// A bar or a counter on standard error; silent when that is no terminal.
fn styled(what: &'static str, total: Option<u64>, style: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(8));
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.set_message(what);
    if total.is_none() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}

/// A bar of records.
pub(crate) fn bar(what: &'static str, total: u64) -> ProgressBar {
    let style = "{msg} {bar:30} {human_pos}/{human_len} records {per_sec} eta {eta}";
    styled(what, Some(total), style)
}

/// A counter of records, for work of unknown length.
pub(crate) fn counter(what: &'static str) -> ProgressBar {
    styled(what, None, "{spinner} {msg} {human_pos} records {per_sec}")
}

/// A counter of sessions.
pub(crate) fn sessions(what: &'static str) -> ProgressBar {
    styled(what, None, "{spinner} {msg} {human_pos} sessions {per_sec}")
}

/// A bar of bytes, or a counter where it is not known how many there are.
pub(crate) fn bytes(what: &'static str, total: Option<u64>) -> ProgressBar {
    let style = match total {
        Some(_) => "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}",
        None => "{spinner} {msg} {bytes} {bytes_per_sec}",
    };
    styled(what, total, style)
}

/// The bar of a store that recovers: there is none until it says so.
#[derive(Clone, Default)]
pub(crate) struct Recovery(Arc<Mutex<Option<ProgressBar>>>);

impl Recovery {
    /// What to give to the store that is opened.
    pub(crate) fn watch(&self) -> OpenProgress {
        let this = self.clone();
        OpenProgress::new(move |Recovering { fraction }| {
            let mut bar = this.0.lock().unwrap_or_else(PoisonError::into_inner);
            let style = "{msg} {bar:30} {percent} % {elapsed}";
            let bar = bar.get_or_insert_with(|| {
                let bar = styled("recovering", Some(1_000), style);
                bar.enable_steady_tick(Duration::from_millis(200));
                bar
            });
            // A part of one, in thousandths.
            bar.set_position((fraction.clamp(0.0, 1.0) * 1_000.0) as u64);
        })
    }

    /// The store is open, or it will not be.
    pub(crate) fn finish(&self, opened: bool) {
        if let Some(bar) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let took = bar.elapsed();
            bar.finish_and_clear();
            if opened && !bar.is_hidden() {
                crate::output::tell(&recovered(took));
            }
        }
    }
}

/// How long a recovery took, for people.
pub(crate) fn recovered(took: Duration) -> String {
    format!("store recovered in {:.1} s", took.as_secs_f64())
}
