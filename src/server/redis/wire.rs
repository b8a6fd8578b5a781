//! From calls to Redis commands, and from Redis values to replies.

mod clockless;
mod commands;
mod decode;
mod encode;
mod info;
mod introduction;
mod login;
mod plain;
mod published;
mod refusal;

pub(in crate::server) use commands::{command, write_commands};
pub(in crate::server) use decode::reply;
pub(in crate::server) use encode::inspection;
pub(super) use info::info_field;
#[cfg(any(test, fuzzing))]
pub(super) use introduction::is_replica;
pub(super) use introduction::{
    PROBE_COMMANDS, add_probe, connected_replicas, introduced, introduction, probe, probe_commands,
    server_time,
};
pub(super) use login::{
    NAMING_COMMANDS, NOT_RESP, auth, is_without_resp3, login, spoken, stranger, subscription,
    tracking, value,
};
pub(super) use plain::is_token;
pub(in crate::server) use plain::write_plain;
pub(crate) use plain::{Plain, taken, taken_at_once};
pub(super) use published::{message, pushed};
pub(super) use refusal::{
    brief, error_reply, failure, forbidden_to_a_script, is_about, is_about_the_command, is_login,
    lasting, refused,
};
