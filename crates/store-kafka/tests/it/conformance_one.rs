//! The contract's suite on one broker.

use crate::support::{Cluster, Subject};

mainspring_conformance::log_store_conformance!(if there: || Subject::fresh(Cluster::One));
