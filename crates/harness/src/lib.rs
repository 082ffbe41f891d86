//! Author SDK and reference harnesses.
//!
//! A harness is an agent as its author brings it: a [`Harness`] with a
//! `describe` and a `run`. This crate adds the few helpers that most authors
//! need, and the four harnesses that every host knows by name.
//!
//! - [`HistoryPages`] and [`conversation`] read what went before, in pages.
//! - [`Keys`] derives idempotency keys that are the same on every replay.
//! - [`mediate`], [`call_tools`] and [`tool_message`] turn a model's tool calls
//!   into effects and feed their results back.
//! - [`Echo`], [`Chat`], [`Counter`] and [`Gate`] are the reference harnesses,
//!   [`reference()`] finds one by its kind, and [`EchoModel`] is the model of a
//!   host that has no other.
//!
//! A run must be a deterministic function of its start and of what the sink
//! returns: no clock, no randomness, no environment, no unordered iteration.
//! Every model call goes through the sink, and its completion is not output
//! again. Change `version` whenever the order of effects or the content of
//! requests changes.
//!
//! ```
//! use std::sync::Arc;
//!
//! use mainspring_api::{Descriptor, EventSink, Harness, HarnessError, ModelRequest, Start, async_trait};
//! use mainspring_harness::{Keys, call_tools, conversation, tool_message};
//!
//! #[derive(Debug)]
//! struct Clerk;
//!
//! #[async_trait]
//! impl Harness for Clerk {
//!     async fn describe(&self) -> Result<Descriptor, HarnessError> {
//!         Ok(Descriptor { id: "clerk".into(), version: "1".into(), ..Descriptor::default() })
//!     }
//!
//!     async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
//!         let mut keys = Keys::of(&start);
//!         let mut messages = conversation(&*start.history).await?;
//!         messages.extend(start.inputs);
//!         for _ in 0..8 {
//!             let request = ModelRequest { messages: messages.clone(), ..ModelRequest::default() };
//!             let reply = sink.model(request).await?;
//!             sink.usage(reply.usage).await?;
//!             let results = call_tools(&*sink, &reply.message, &mut keys).await?;
//!             if results.is_empty() {
//!                 return Ok(());
//!             }
//!             messages.extend([reply.message, tool_message(results)]);
//!         }
//!         Err(HarnessError::failed("the model asked for tools eight times in a row"))
//!     }
//! }
//! ```
//!
//! It does not serve a harness to other processes; a transport does.
//!
//! [`Harness`]: mainspring_api::Harness

mod chat;
mod counter;
mod echo;
mod echo_model;
mod gate;
mod history;
mod keys;
mod reference;
mod tools;

pub use chat::{CHAT_CONFIG_INVALID, Chat};
pub use counter::Counter;
pub use echo::Echo;
pub use echo_model::EchoModel;
pub use gate::{GATE_CONFIG_INVALID, Gate};
pub use history::{HISTORY_PAGE_EVENTS, HistoryPages, conversation};
pub use keys::Keys;
pub use reference::{REFERENCE_KINDS, reference};
pub use tools::{call_tools, mediate, tool_calls, tool_message};
