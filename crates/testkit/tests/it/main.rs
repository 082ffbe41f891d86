//! The doubles do what their docs say.

mod cut;
