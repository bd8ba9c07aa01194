//! Runs scripts: Lua 5.1 with what Redis adds to it, as far as the scripts use it.
//!
//! Invariant: a script sees one instant, and nobody else changes the data while it runs. A script that fails keeps the
//! changes that it made.

use std::{cell::RefCell, collections::HashMap, fmt, rc::Rc};

use bytes::Bytes;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue};
use redis_script::client::{Script, Value};

use super::{
    arguments::Arguments,
    commands::{self, Refusal, Reply},
    data::Data,
    keys::{Caller, Effect, Keys},
    packing,
};

/// The name that Redis gives to a script's text, for messages.
const CHUNK: &str = "user_script";

/// The largest number of an argument that Redis writes as digits only.
const MAX_ARGUMENT: u64 = 100_000_000_000_000_000;

/// The process that runs a script.
pub(crate) struct Process<'a> {
    /// The clock of its machine, in microseconds since the Unix epoch.
    pub(crate) unix_us: u64,
    /// 40 hexadecimal digits; another one for each start.
    pub(crate) run_id: &'a str,
    /// 40 hexadecimal digits; others each time it becomes a primary.
    pub(crate) replid: &'a str,
    /// How many replicas are connected.
    pub(crate) replicas: u32,
    /// A replica runs scripts, too, but they cannot write.
    pub(crate) is_primary: bool,
}

/// Lua with the functions of Redis. Scripts are compiled once.
pub(crate) struct Interpreter {
    lua: Lua,
    keys: Rc<RefCell<Keys>>,
    compiled: RefCell<HashMap<String, Function>>,
    /// The field of an error, and of a status.
    fields: [mlua::String; 2],
}

/// An error that a function of Redis raises in a script.
#[derive(Debug)]
struct Raised {
    text: String,
    line: usize,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

thread_local! {
    static OF_THREAD: Interpreter = Interpreter::new();
}

impl Interpreter {
    /// Calls `act` with the interpreter of this thread. Lua cannot be sent to another thread, and an interpreter keeps
    /// nothing between two scripts. So a caller that must be `Send` need not hold one.
    pub(crate) fn with<T>(act: impl FnOnce(&Self) -> T) -> T {
        OF_THREAD.with(act)
    }

    /// Panics if Lua has no memory.
    pub(crate) fn new() -> Self {
        Self::build().expect("Lua starts")
    }

    fn build() -> mlua::Result<Self> {
        // A panic of the model goes through a script unchanged.
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, options)?;
        let keys: Rc<RefCell<Keys>> = Rc::default();
        let globals = lua.globals();
        // What Redis does not have, or what is not the same each time.
        for name in ["collectgarbage", "dofile", "getfenv", "loadfile", "newproxy", "print", "setfenv"] {
            globals.raw_remove(name)?;
        }
        let math: Table = globals.raw_get("math")?;
        math.raw_remove("random")?;
        math.raw_remove("randomseed")?;
        globals.raw_set("redis", functions(&lua, &keys)?)?;
        globals.raw_set("tostring", text_of(&lua, &keys)?)?;
        let packing = lua.create_table()?;
        packing.raw_set("pack", lua.create_function(pack)?)?;
        packing.raw_set("unpack", lua.create_function(unpack)?)?;
        globals.raw_set("struct", packing)?;
        let guard = lua.create_table()?;
        guard.raw_set(
            "__index",
            lua.create_function(|_, (_, name): (LuaValue, LuaValue)| -> mlua::Result<()> {
                panic!("a script read the global {name:?}, which the model does not have")
            })?,
        )?;
        guard.raw_set(
            "__newindex",
            lua.create_function(|_, (_, name): (LuaValue, LuaValue)| -> mlua::Result<()> {
                panic!("a script sets the global {name:?}, which Redis refuses")
            })?,
        )?;
        globals.set_metatable(Some(guard))?;
        let fields = [lua.create_string("err")?, lua.create_string("ok")?];
        Ok(Self { lua, keys, compiled: RefCell::default(), fields })
    }

    /// Runs a script atomically, at the instant of `process`. Returns its answer, or its error as Redis passes it on, and
    /// what a primary's replicas must be told, in order. Panics if the script needs something that the model does not have.
    pub(crate) fn run(
        &self,
        data: &mut Data,
        script: &Script,
        keys: &[Bytes],
        args: &[Bytes],
        process: &Process<'_>,
    ) -> (Result<Value, String>, Vec<Effect>) {
        let function = self.compiled(script);
        {
            let mut ours = self.keys.borrow_mut();
            ours.data = std::mem::take(data);
            ours.caller = if process.is_primary { Caller::ScriptOnPrimary } else { Caller::ScriptOnReplica };
            ours.unix_us = process.unix_us;
            process.run_id.clone_into(&mut ours.run_id);
            process.replid.clone_into(&mut ours.replid);
            ours.replicas = process.replicas;
            ours.is_silent = false;
            ours.effects.clear();
        }
        let answer = self.call(&function, keys, args).and_then(|answer| self.answer(answer));
        let mut ours = self.keys.borrow_mut();
        *data = std::mem::take(&mut ours.data);
        let effects = std::mem::take(&mut ours.effects);
        drop(ours);
        (answer.map_err(|fault| error_text(fault, script)), effects)
    }

    fn compiled(&self, script: &Script) -> Function {
        if let Some(function) = self.compiled.borrow().get(&script.sha1) {
            return function.clone();
        }
        let function = self.lua.load(&script.text).set_name(format!("@{CHUNK}")).into_function();
        let function =
            function.unwrap_or_else(|error| panic!("the script {} is no Lua: {error}", script.name));
        self.compiled.borrow_mut().insert(script.sha1.clone(), function.clone());
        function
    }

    fn call(&self, function: &Function, keys: &[Bytes], args: &[Bytes]) -> Result<LuaValue, Fault> {
        let globals = self.lua.globals();
        for (name, parts) in [("KEYS", keys), ("ARGV", args)] {
            let parts = parts.iter().map(mlua::String::wrap);
            globals.raw_set(name, self.lua.create_sequence_from(parts)?)?;
        }
        Ok(function.call(())?)
    }

    /// A script's answer, as Redis turns it into a reply.
    fn answer(&self, value: LuaValue) -> Result<Value, Fault> {
        Ok(match value {
            LuaValue::String(text) => Value::Bytes(Bytes::copy_from_slice(&text.as_bytes())),
            LuaValue::Integer(number) => Value::Int(number),
            #[allow(clippy::cast_possible_truncation, reason = "Redis cuts the fraction off")]
            LuaValue::Number(number) => Value::Int(number as i64),
            LuaValue::Boolean(true) => Value::Int(1),
            LuaValue::Table(table) => {
                let [error, status] = &self.fields;
                if let LuaValue::String(text) = table.raw_get(error)? {
                    return Err(Fault::Returned(text.to_string_lossy()));
                }
                if let LuaValue::String(text) = table.raw_get(status)? {
                    return Ok(Value::Bytes(Bytes::copy_from_slice(&text.as_bytes())));
                }
                let parts = table.sequence_values().map(|part| self.answer(part?));
                Value::Array(parts.collect::<Result<_, _>>()?)
            }
            _ => Value::Nil,
        })
    }
}

/// Why a script has no answer.
enum Fault {
    /// It returned an error, with this text.
    Returned(String),
    Failed(mlua::Error),
}

impl From<mlua::Error> for Fault {
    fn from(error: mlua::Error) -> Self {
        Self::Failed(error)
    }
}

/// The text of an error, as Redis passes it on.
fn error_text(fault: Fault, script: &Script) -> String {
    let (text, line) = match fault {
        Fault::Returned(text) => return text,
        Fault::Failed(mlua::Error::CallbackError { cause, .. }) => match cause.downcast_ref::<Raised>() {
            Some(Raised { text, line }) => (text.clone(), *line),
            None => panic!("the script {} failed in the model: {cause}", script.name),
        },
        Fault::Failed(mlua::Error::RuntimeError(text)) => {
            let (message, frames) = text.split_once("\nstack traceback:").unwrap_or((&text, ""));
            let mut lines = frames.lines().filter_map(|frame| frame.trim_start().strip_prefix(CHUNK));
            let line =
                lines.next().and_then(|frame| frame.strip_prefix(':')?.split(':').next()?.parse().ok());
            (format!("ERR {message}"), line.unwrap_or_default())
        }
        Fault::Failed(other) => panic!("the script {} failed in the model: {other}", script.name),
    };
    format!("{text} script: {}, on @{CHUNK}:{line}.", script.sha1)
}

/// The line of the script that called the current function.
fn line(lua: &Lua) -> usize {
    lua.inspect_stack(1, |frame| frame.current_line().unwrap_or_default()).unwrap_or_default()
}

fn raised(lua: &Lua, text: impl Into<String>) -> mlua::Error {
    mlua::Error::external(Raised { text: text.into(), line: line(lua) })
}

/// An error of a function of Lua, which names the line itself.
fn raised_by_lua(lua: &Lua, text: &str) -> mlua::Error {
    let line = line(lua);
    mlua::Error::external(Raised { text: format!("ERR {CHUNK}:{line}: {text}"), line })
}

/// `tostring`, for which the table `redis` is elsewhere in each process.
fn text_of(lua: &Lua, keys: &Rc<RefCell<Keys>>) -> mlua::Result<Function> {
    let (ours, of_lua): (_, Function) = (Rc::clone(keys), lua.globals().raw_get("tostring")?);
    lua.create_function(move |lua, value: LuaValue| match value {
        LuaValue::Table(_) => lua.create_string(format!("table: 0x{}", &ours.borrow().run_id[..12])),
        value => of_lua.call(value),
    })
}

/// The table `redis`.
fn functions(lua: &Lua, keys: &Rc<RefCell<Keys>>) -> mlua::Result<Table> {
    let (none, all) = (0, 3);
    let redis = lua.create_table()?;
    redis.raw_set("REPL_NONE", none)?;
    redis.raw_set("REPL_ALL", all)?;
    let ours = Rc::clone(keys);
    let set_repl = move |_: &Lua, flags: i64| {
        assert!(flags == none || flags == all, "the model replicates all or nothing, not {flags}");
        ours.borrow_mut().is_silent = flags == none;
        Ok(())
    };
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    let error_reply = |lua: &Lua, text: mlua::String| {
        let text = text.to_string_lossy();
        let text = text.strip_prefix('-').unwrap_or(&text);
        let code = if text.contains(' ') { "" } else { "ERR " };
        lua.create_table_from([("err", format!("{code}{text}"))])
    };
    redis.raw_set("error_reply", lua.create_function(error_reply)?)?;
    let status = lua.create_table_from([("ok", "OK")])?;
    let (ours, arguments) = (Rc::clone(keys), RefCell::new(Arguments::default()));
    let call = move |lua: &Lua, values: MultiValue| {
        let (mut keys, mut arguments) = (ours.borrow_mut(), arguments.borrow_mut());
        take_arguments(&mut arguments, &values)
            .and_then(|()| commands::execute(&mut keys, &arguments))
            .map_err(|refusal| raised(lua, refusal.0))
            .and_then(|reply| reply_value(lua, reply, &status))
    };
    let call = lua.create_function(call)?;
    redis.raw_set("call", &call)?;
    let caught = "local call = ...; return function(...)
        local ok, reply = pcall(call, ...)
        if ok then return reply end
        return { err = tostring(reply) }
    end";
    redis.raw_set("pcall", lua.load(caught).call::<mlua::Function>(call)?)?;
    Ok(redis)
}

fn take_arguments(arguments: &mut Arguments, values: &MultiValue) -> Result<(), Refusal> {
    arguments.clear();
    for value in values {
        match value {
            LuaValue::String(text) => arguments.push(&text.as_bytes()),
            LuaValue::Integer(number) if number.unsigned_abs() < MAX_ARGUMENT => arguments.push_int(*number),
            LuaValue::Integer(_) | LuaValue::Number(_) => panic!("a script passes {value:?} to a command"),
            _ => {
                return Err(Refusal("ERR Lua redis lib command arguments must be strings or integers"));
            }
        }
    }
    if arguments.len() == 0 {
        return Err(Refusal("ERR Please specify at least one argument for this redis lib call"));
    }
    Ok(())
}

/// A command's reply as a value of Lua.
fn reply_value(lua: &Lua, reply: Reply<'_>, status: &Table) -> mlua::Result<LuaValue> {
    let text = |text: &[u8]| lua.create_string(text).map(LuaValue::String);
    let sequence = |values: &mut dyn Iterator<Item = mlua::Result<LuaValue>>| {
        let values: Vec<LuaValue> = values.collect::<mlua::Result<_>>()?;
        lua.create_sequence_from(values).map(LuaValue::Table)
    };
    match reply {
        Reply::Nil => Ok(LuaValue::Boolean(false)),
        Reply::Int(number) => Ok(LuaValue::Integer(number)),
        Reply::Ok => Ok(LuaValue::Table(status.clone())),
        Reply::Bytes(bytes) => text(bytes),
        Reply::Text(bytes) => text(bytes.as_bytes()),
        Reply::List(parts) => {
            sequence(&mut parts.iter().map(|part| part.map_or(Ok(LuaValue::Boolean(false)), text)))
        }
        Reply::Ints(numbers) => sequence(&mut numbers.iter().map(|number| Ok(LuaValue::Integer(*number)))),
        Reply::Texts(parts) => sequence(&mut parts.iter().map(|part| text(part.as_bytes()))),
    }
}

fn pack(lua: &Lua, (format, values): (mlua::String, MultiValue)) -> mlua::Result<mlua::String> {
    let mut packed = Vec::with_capacity(8 * values.len());
    let mut values = values.into_iter();
    for (i, field) in packing::fields(&format.as_bytes()).enumerate() {
        let number = match values.next() {
            #[allow(clippy::cast_precision_loss, reason = "it was a double")]
            Some(LuaValue::Integer(number)) => number as f64,
            Some(LuaValue::Number(number)) => number,
            other => {
                let other = other.unwrap_or(LuaValue::Nil);
                let found = other.type_name();
                let number = lua.coerce_number(other)?;
                number.ok_or_else(|| {
                    let wrong = format!("bad argument #{} to 'pack' (number expected, got {found})", i + 2);
                    raised_by_lua(lua, &wrong)
                })?
            }
        };
        field.write(number, &mut packed);
    }
    lua.create_string(&packed)
}

fn unpack(
    lua: &Lua,
    (format, text, at): (mlua::String, mlua::String, Option<i64>),
) -> mlua::Result<MultiValue> {
    let text = text.as_bytes();
    let mut at = usize::try_from(at.unwrap_or(1) - 1).expect("scripts count from 1");
    let mut values = Vec::with_capacity(format.as_bytes().len() / 2 + 1);
    for field in packing::fields(&format.as_bytes()) {
        let Some(bytes) = text.get(at..at + field.size) else {
            return Err(raised_by_lua(lua, "bad argument #2 to 'unpack' (data string too short)"));
        };
        values.push(LuaValue::Number(field.read(bytes)));
        at += field.size;
    }
    values.push(LuaValue::Integer(i64::try_from(at + 1).expect("fits in memory")));
    Ok(MultiValue::from_vec(values))
}
