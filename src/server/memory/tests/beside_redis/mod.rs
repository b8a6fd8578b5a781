//! All tests that need a real server: without one, `npm run test:unit` leaves out this module.

// Redis has Lua 5.1.
#[cfg(not(lua54))]
mod differential;
mod in_step;
mod lock_scripts;
mod real_server;
