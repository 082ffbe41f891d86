//! Tokens and certificates, through the authenticators' contract.

mod both;
mod certificates;
mod config;
mod fetching;
mod support;
mod tokens;
