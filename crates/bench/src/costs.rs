//! What single things cost on a log on Kafka, as one bench measures them and
//! another reckons capacity from them.

use std::fmt;

use serde_json::{Map, Value};

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Unit costs of a store on Kafka.
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub struct Costs {
            $($(#[doc = $doc])+ pub $name: f64,)+
        }

        impl Costs {
            /// As they are kept in a file.
            #[must_use]
            pub fn json(&self) -> Value {
                let mut fields = Map::new();
                $(fields.insert(stringify!($name).to_owned(), Value::from(self.$name));)+
                Value::Object(fields)
            }

            /// Reads what [`Costs::json`] gave.
            ///
            /// # Errors
            /// [`NoCosts`] for a text that is not of all costs.
            pub fn from_json(text: &str) -> Result<Self, NoCosts> {
                let fields: Value = serde_json::from_str(text).map_err(|_| NoCosts("JSON"))?;
                Ok(Self {
                    $($name: fields[stringify!($name)].as_f64().ok_or(NoCosts(stringify!($name)))?,)+
                })
            }
        }
    };
}

costs! {
    /// Microseconds from an append to its answer, alone.
    round_trip_us,
    /// Bytes of a message before its entries.
    message_bytes,
    /// Bytes of an append beyond its records.
    append_bytes,
    /// Bytes of a record beyond its canonical ones.
    record_bytes,
    /// Bytes of a mint of a fence.
    mint_bytes,
    /// Bytes of the creation of a session.
    create_bytes,
    /// Bytes of a view for each idle session.
    view_session_bytes,
    /// Bytes of a view for each record.
    view_record_bytes,
    /// Bytes of a checkpoint for each idle session.
    checkpoint_session_bytes,
    /// Bytes of a checkpoint for each record.
    checkpoint_record_bytes,
    /// Bytes of a checkpoint that are written in a second.
    checkpoint_saved_a_second,
    /// Bytes of a checkpoint that fill a view in a second.
    checkpoint_loaded_a_second,
    /// Bytes of a host's memory with few sessions and a long log.
    host_memory_bytes,
    /// Bytes of a host's memory for each session that its fold keeps a state of.
    session_memory_bytes,
    /// Microseconds of a fold for each message.
    fold_message_us,
    /// Microseconds of a fold for each append.
    fold_append_us,
    /// Microseconds of a fold for each record.
    fold_record_us,
}

/// A text that is not of unit costs: what it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCosts(&'static str);

impl fmt::Display for NoCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit costs without {}", self.0)
    }
}

impl std::error::Error for NoCosts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_as_they_were_written() {
        let costs = Costs { append_bytes: 171.0, fold_record_us: 4.25, ..Costs::default() };
        assert_eq!(Ok(costs), Costs::from_json(&costs.json().to_string()));
    }

    #[test]
    fn a_cost_that_is_missing_is_named() {
        let mut json = Costs::default().json();
        json.as_object_mut().unwrap().remove("mint_bytes");
        assert_eq!(Err(NoCosts("mint_bytes")), Costs::from_json(&json.to_string()));
        assert_eq!(Err(NoCosts("JSON")), Costs::from_json("{"));
    }
}
