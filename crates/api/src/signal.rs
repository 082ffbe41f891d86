//! A one-shot signal that many can wait for, without an executor.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A value that is set once; clones share it.
///
/// It carries a reason from whoever stops something to whoever must stop.
#[derive(Debug)]
pub struct Signal<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    next_key: u64,
    waiting: Vec<(u64, Waker)>,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { value: None, next_key: 0, waiting: Vec::new() })))
    }
}

impl<T: Clone + Send> Signal<T> {
    /// Sets the value; the first one wins. Returns whether this was the first.
    pub fn set(&self, value: T) -> bool {
        let waiting = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.value.is_some() {
                return false;
            }
            state.value = Some(value);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
        true
    }

    /// The value, if it is set.
    #[must_use]
    pub fn get(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).value.clone()
    }

    /// Waits until the value is set.
    pub fn wait(&self) -> impl Future<Output = T> + Send + use<T> {
        Wait { signal: self.clone(), key: None }
    }
}

struct Wait<T> {
    signal: Signal<T>,
    key: Option<u64>,
}

impl<T: Clone> Future for Wait<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let mut state = this.signal.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &state.value {
            return Poll::Ready(value.clone());
        }
        match this.key.and_then(|key| state.waiting.iter_mut().find(|(k, _)| *k == key)) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => {
                let key = state.next_key;
                state.next_key += 1;
                state.waiting.push((key, cx.waker().clone()));
                this.key = Some(key);
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let mut state = self.signal.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.waiting.retain(|(k, _)| *k != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_first_value_wins_and_wakes_every_waiter_once() {
        let signal = Signal::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let mut first = Box::pin(signal.wait());
        let mut second = Box::pin(signal.wait());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(second);
        assert!(signal.set(1));
        assert!(!signal.set(2));
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "a dropped waiter is forgotten");
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(1));
    }
}
