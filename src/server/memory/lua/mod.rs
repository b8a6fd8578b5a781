//! The embedded Lua, 5.1 as in Redis: compiles scripts, runs them, and lets them call commands.

mod convert;

use super::commands::{self, Caller};
use super::keyspace::{Shared, access};
use super::reply;
use convert::Argument;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Variadic};
use redis::Value;
use std::collections::BTreeMap;

/// The chunk name that Redis gives to every script.
const CHUNK: &str = "@user_script";

pub(super) struct Engine {
    lua: Lua,
    /// Calls a script and catches its error; see `prelude.lua`.
    run: Function,
    /// The globals of scripts.
    environment: Table,
    /// Compiled scripts by their text.
    compiled: BTreeMap<String, Function>,
}

impl Engine {
    /// Starts a Lua whose `redis.call` works on `keyspace`.
    pub(super) fn new(keyspace: &Shared) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let keyspace = Shared::clone(keyspace);
        let invoke =
            lua.create_function(move |lua, args: Variadic<_>| invoke(&keyspace, lua, &args))?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let (run, environment) = prelude.call(invoke)?;
        Ok(Self { lua, run, environment, compiled: BTreeMap::new() })
    }

    /// Runs a script and returns its reply.
    pub(super) fn eval(&mut self, source: &str, keys: &[&[u8]], args: &[&[u8]]) -> Value {
        let script = match self.compile(source) {
            Ok(script) => script,
            Err(error) => return uncompiled(&error),
        };
        self.run(script, keys, args).unwrap_or_else(|error| reply::error(&format!("ERR {error}")))
    }

    fn compile(&mut self, source: &str) -> mlua::Result<Function> {
        if let Some(script) = self.compiled.get(source) {
            return Ok(script.clone());
        }
        let chunk = self.lua.load(source).set_name(CHUNK).set_mode(ChunkMode::Text);
        let script = chunk.set_environment(self.environment.clone()).into_function()?;
        self.compiled.insert(source.to_owned(), script.clone());
        Ok(script)
    }

    fn run(&self, script: Function, keys: &[&[u8]], args: &[&[u8]]) -> mlua::Result<Value> {
        let call = (script, self.list(keys)?, self.list(args)?);
        let (succeeded, result): (bool, mlua::Value) = self.run.call(call)?;
        if succeeded {
            return convert::to_reply(&result);
        }
        // Redis would append the place: ` script: <its hash>, on @user_script:<the line>.`
        let text = result.as_string().map(mlua::LuaString::to_string_lossy).unwrap_or_default();
        Ok(reply::error(&text))
    }

    fn list(&self, items: &[&[u8]]) -> mlua::Result<Table> {
        let list = self.lua.create_table_with_capacity(items.len(), 0)?;
        for item in items {
            list.raw_push(self.lua.create_string(item)?)?;
        }
        Ok(list)
    }
}

fn uncompiled(error: &mlua::Error) -> Value {
    let detail = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        error => error.to_string(),
    };
    reply::error(&format!("ERR Error compiling script (new function): {detail}"))
}

/// `redis.call` and `redis.pcall`: whether the command failed, and its reply.
fn invoke(keyspace: &Shared, lua: &Lua, args: &[mlua::Value]) -> mlua::Result<(bool, mlua::Value)> {
    let outcome = match read(args) {
        Ok(args) => {
            let parts: Vec<&[u8]> = args.iter().map(Argument::bytes).collect();
            commands::run(&mut access(keyspace), &parts, Caller::Script)
        }
        Err(text) => Err(text.into()),
    };
    match outcome {
        Ok(value) => Ok((false, convert::to_lua(lua, value)?)),
        Err(text) => Ok((true, convert::single(lua, "err", text.as_bytes())?)),
    }
}

fn read(args: &[mlua::Value]) -> Result<Vec<Argument>, &'static str> {
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let args: Option<Vec<Argument>> = args.iter().map(Argument::read).collect();
    args.ok_or("ERR Lua redis lib command arguments must be strings or integers")
}
