//! Conversions between values of Lua and of the wire, by the rules of Redis.

use crate::server::memory::{number, reply};
use mlua::{BorrowedBytes, Lua, Table};
use redis::Value;

/// The deepest nesting of a script's tables: clients read no deeper reply, and a table may contain itself.
const DEPTH_MAX: usize = 99;

/// The argument that a script passes to a command.
pub(super) enum Argument {
    Text(BorrowedBytes),
    Number(String),
}

impl Argument {
    /// None if a command cannot take the value.
    pub(super) fn read(value: &mlua::Value) -> Option<Self> {
        match value {
            mlua::Value::String(text) => Some(Self::Text(text.as_bytes())),
            mlua::Value::Integer(integer) => Some(Self::Number(text_of_integer(*integer))),
            mlua::Value::Number(number) => Some(Self::Number(text_of(*number))),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(bytes) => bytes,
            Self::Number(text) => text.as_bytes(),
        }
    }
}

/// A command's reply, as the script gets it.
pub(super) fn to_lua(lua: &Lua, value: Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Int(integer) => to_number(integer),
        Value::BulkString(bytes) => mlua::Value::String(lua.create_string(bytes)?),
        Value::Okay => single(lua, "ok", b"OK")?,
        Value::SimpleString(text) => single(lua, "ok", text.as_bytes())?,
        Value::Array(items) => {
            let list = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                list.raw_push(to_lua(lua, item)?)?;
            }
            mlua::Value::Table(list)
        }
        // The only other reply of a command here is nil.
        _ => mlua::Value::Boolean(false),
    })
}

/// The table that represents a status or an error.
pub(super) fn single(lua: &Lua, field: &str, text: &[u8]) -> mlua::Result<mlua::Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, lua.create_string(text)?)?;
    Ok(mlua::Value::Table(table))
}

/// A script's result, as its caller gets it.
pub(super) fn to_reply(value: &mlua::Value) -> mlua::Result<Value> {
    Ok(nested(value, 0)?.unwrap_or_else(|| reply::error("ERR reached lua stack limit")))
}

/// None if the value is nested too deeply.
fn nested(value: &mlua::Value, depth: usize) -> mlua::Result<Option<Value>> {
    Ok(Some(match value {
        mlua::Value::Integer(integer) => Value::Int(*integer),
        mlua::Value::Number(number) => from_number(*number),
        mlua::Value::String(text) => reply::bulk(&*text.as_bytes()),
        mlua::Value::Boolean(true) => Value::Int(1),
        mlua::Value::Table(_) if depth > DEPTH_MAX => return Ok(None),
        mlua::Value::Table(table) => {
            if let Some(text) = text_at(table, "err")? {
                reply::error(&text)
            } else if let Some(text) = text_at(table, "ok")? {
                reply::status(&text)
            } else {
                return array(table, depth);
            }
        }
        _ => Value::Nil,
    }))
}

/// The elements up to the first nil.
fn array(table: &Table, depth: usize) -> mlua::Result<Option<Value>> {
    let mut items = Vec::new();
    for index in 1_i64.. {
        let item: mlua::Value = table.raw_get(index)?;
        if item.is_nil() {
            break;
        }
        let Some(item) = nested(&item, depth + 1)? else { return Ok(None) };
        items.push(item);
    }
    Ok(Some(Value::Array(items)))
}

fn text_at(table: &Table, field: &str) -> mlua::Result<Option<String>> {
    let value: mlua::Value = table.raw_get(field)?;
    Ok(value.as_string().map(mlua::LuaString::to_string_lossy))
}

#[cfg(not(lua54))]
use of_51::{from_number, text_of, text_of_integer, to_number};
#[cfg(lua54)]
use of_54::{from_number, text_of, text_of_integer, to_number};

/// Numbers of Lua 5.1, as Redis converts them.
#[cfg(not(lua54))]
mod of_51 {
    use super::{Value, number};

    #[expect(clippy::cast_precision_loss, reason = "Lua 5.1 has no other numbers")]
    const fn as_number(integer: i64) -> f64 {
        integer as f64
    }

    pub(super) const fn to_number(integer: i64) -> mlua::Value {
        mlua::Value::Number(as_number(integer))
    }

    pub(super) fn text_of_integer(integer: i64) -> String {
        text_of(as_number(integer))
    }

    pub(super) fn text_of(number: f64) -> String {
        number::text(number)
    }

    /// Numbers out of range become the least integer, as on the machines that Redis runs on.
    #[expect(clippy::cast_possible_truncation, reason = "that is what Redis does")]
    pub(super) fn from_number(number: f64) -> Value {
        let limit = 9_223_372_036_854_775_808.0;
        Value::Int(if (-limit..limit).contains(&number) { number as i64 } else { i64::MIN })
    }
}

/// Numbers of Lua 5.4, which tells integers and floats apart. A whole float is a mistake wherever a script passes or
/// returns one: servers disagree on what it becomes.
#[cfg(lua54)]
mod of_54 {
    use super::{Value, number};

    pub(super) const fn to_number(integer: i64) -> mlua::Value {
        mlua::Value::Integer(integer)
    }

    pub(super) fn text_of_integer(integer: i64) -> String {
        integer.to_string()
    }

    pub(super) fn text_of(number: f64) -> String {
        let is_whole = number.fract() == 0.0 && number.abs() < 9e18;
        if is_whole { format!("a float: {number:?}") } else { number::text(number) }
    }

    pub(super) const fn from_number(number: f64) -> Value {
        Value::Double(number)
    }
}
