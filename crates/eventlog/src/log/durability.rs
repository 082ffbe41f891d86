//! What a store promises of an answered write.

use std::fmt;

/// What it takes for an answered write to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// It is lost with the process.
    Volatile,
    /// It was synced to one disk before it was answered.
    Local,
    /// It was taken by several machines before it was answered.
    Replicated {
        /// How many keep a copy.
        replicas: u16,
        /// How many of them have it, at the least, when it is answered.
        in_sync_min: u16,
    },
    /// One replica took it, and synced it before it answered.
    Flushed,
    /// One replica took it and synced nothing: a machine that dies loses what
    /// it had answered.
    Development,
}

impl Durability {
    /// Its class, for machines: stable, lower case, one word.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Volatile => "volatile",
            Self::Local => "local",
            Self::Replicated { .. } => "replicated",
            Self::Flushed => "flushed",
            Self::Development => "development",
        }
    }
}

/// The class, with its numbers: `replicated (3 replicas, 2 in sync)`.
impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class())?;
        match self {
            Self::Replicated { replicas, in_sync_min } => {
                write!(f, " ({replicas} replicas, {in_sync_min} in sync)")
            }
            Self::Volatile | Self::Local | Self::Flushed | Self::Development => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Durability;

    #[test]
    fn a_durability_is_written_with_its_class_first() {
        let replicated = Durability::Replicated { replicas: 3, in_sync_min: 2 };
        assert_eq!(replicated.to_string(), "replicated (3 replicas, 2 in sync)");
        let all = [
            (Durability::Volatile, "volatile"),
            (Durability::Local, "local"),
            (replicated, "replicated"),
            (Durability::Flushed, "flushed"),
            (Durability::Development, "development"),
        ];
        for (durability, class) in all {
            assert_eq!(durability.class(), class);
            assert!(durability.to_string().starts_with(class));
        }
    }
}
