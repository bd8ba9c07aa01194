//! Random commands, and small scripts, on a server and on the model. Each command runs inside of a script, so that the
//! conversions between Redis and Lua are compared, too.

use std::{fmt, sync::LazyLock};

use bytes::Bytes;
use redis_script::client::{Script, Value};

use super::{Real, calls, same_keys, sorted};
use crate::{
    plain::Plain,
    redis::{Data, Interpreter, Process},
    seed::Random,
};

/// Runs the command in `ARGV`.
static AS_TEXT: LazyLock<Script> =
    LazyLock::new(|| Script::new("as text", "return redis.call(unpack(ARGV))"));

/// The same, with numbers as numbers.
static AS_NUMBERS: LazyLock<Script> = LazyLock::new(|| {
    let text = "for i = 2, #ARGV do
      if #ARGV[i] < 16 and string.match(ARGV[i], '^%-?[1-9]%d*$') then ARGV[i] = tonumber(ARGV[i]) end
    end
    return redis.call(unpack(ARGV))";
    Script::new("as numbers", text)
});

/// The same, without telling replicas.
static SILENT: LazyLock<Script> = LazyLock::new(|| {
    let text = "redis.set_repl(redis.REPL_NONE)
    local reply = redis.call(unpack(ARGV))
    redis.set_repl(redis.REPL_ALL)
    return reply";
    Script::new("silent", text)
});

/// A server, the model, and a replica of the model.
struct Pair {
    real: Real,
    interpreter: Interpreter,
    data: Data,
    replica: Data,
    seed_and_call: (u64, usize),
}

impl Pair {
    fn new(plain: &Plain, seed: u64) -> Self {
        let real = Real::new(plain.connect());
        real.command(&[b"FLUSHALL"]);
        Self {
            real,
            interpreter: Interpreter::new(),
            data: Data::default(),
            replica: Data::default(),
            seed_and_call: (seed, 0),
        }
    }

    /// Runs a script on both. Fails if the replies differ.
    fn run(&mut self, script: &Script, args: &[Bytes]) -> Result<Value, String> {
        let unix_us = self.real.unix_us();
        let real = self.real.run(script, &[], args);
        let process = Process {
            unix_us,
            run_id: &self.real.run_id,
            replid: &self.real.replid,
            replicas: 0,
            is_primary: true,
        };
        let (model, effects) = self.interpreter.run(&mut self.data, script, &[], args, &process);
        for effect in &effects {
            self.replica.apply(effect, unix_us);
        }
        let all_fields = args.first().is_some_and(|name| name == "HGETALL");
        let comparable = |reply: Result<Value, String>| match reply {
            Ok(value) if all_fields => Ok(sorted(value, 0)),
            Err(text) if !self.real.has_our_texts => Err(code(&text).to_owned()),
            other => other,
        };
        let (real, model) = (comparable(real), comparable(model));
        assert!(
            real == model,
            "seed and call {:?}, {}: {}\nRedis: {}\nmodel: {}",
            self.seed_and_call,
            script.text,
            Shown(args),
            shown(&real),
            shown(&model)
        );
        self.seed_and_call.1 += 1;
        model
    }

    /// Fails if the keys differ.
    fn compare_keys(&self) {
        let what = format!("seed and call {:?}", self.seed_and_call);
        let now_ms = self.real.unix_us() / 1_000;
        let mut model = self.data.dump();
        let replica = self.replica.dump();
        model.retain(|(name, ..)| *name != "silent");
        same_keys(&format!("{what}, the replica"), &model, &replica, 0);
        model.retain(|(.., at_ms)| at_ms.is_none_or(|at_ms| at_ms >= now_ms));
        let mut real = self.real.dump();
        real.retain(|(name, ..)| *name != "silent");
        same_keys(&what, &real, &model, 5_000);
    }

    /// Lets a key expire, and waits until it has.
    fn let_expire(&mut self, key: &Bytes) {
        drop(self.run(&AS_TEXT, &[Bytes::from_static(b"PEXPIRE"), key.clone(), Bytes::from_static(b"1")]));
        let since = self.real.unix_us();
        while self.real.unix_us() < since + 3_000 {}
    }
}

/// The first word of an error.
fn code(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// Arguments in a message.
struct Shown<'a>(&'a [Bytes]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for arg in self.0 {
            write!(f, "'{}' ", arg[..arg.len().min(200)].escape_ascii())?;
        }
        Ok(())
    }
}

fn shown(reply: &Result<Value, String>) -> String {
    format!("{reply:?}").chars().take(2_000).collect()
}

/// The fields of hashes.
const FIELDS: &[&str] = &[
    "#rev",
    "a",
    "b",
    "",
    "0",
    "1",
    "10",
    "2",
    "\u{e9}",
    "a field that is longer than the 64 bytes of a short one .........",
];

/// Makes random commands.
struct Maker<'a>(&'a mut Random);

impl Maker<'_> {
    fn one_of(&mut self, of: &[&str]) -> Bytes {
        Bytes::copy_from_slice(of[self.0.below(of.len())].as_bytes())
    }

    /// A key that mostly has the type `kind`.
    fn key(&mut self, kind: &str) -> Bytes {
        let kind = if self.0.below(40) == 0 { ["t", "h", "z"][self.0.below(3)] } else { kind };
        format!("{kind}{}", self.0.below(4)).into()
    }

    fn value(&mut self) -> Bytes {
        let length = match self.0.below(20) {
            0 => 0,
            1 => 8_000 + self.0.below(400),
            2..5 => 100 + self.0.below(400),
            _ => self.0.below(40),
        };
        self.0.bytes(length).into()
    }

    fn number(&mut self, end: usize) -> Bytes {
        self.0.below(end).to_string().into()
    }

    /// An index of a string, mostly sensible.
    fn index(&mut self, end: usize) -> Bytes {
        match self.0.below(12) {
            0 => self.one_of(&["-1", "-2", "-7", "-100", "-100000", "0", "1"]),
            1 => self.one_of(&["9223372036854775807", "-9223372036854775808", "100000", "1000000"]),
            2 if self.0.below(10) == 0 => {
                self.one_of(&["x", "", "1.5", "01", "+1", " 1", "-0", "9223372036854775808"])
            }
            _ => self.number(end),
        }
    }

    fn offset(&mut self, end: usize) -> Bytes {
        match self.0.below(60) {
            0 => self.one_of(&["-1", "4294967296", "x", "", "1.5", "007"]),
            _ => self.number(end),
        }
    }

    fn bits_end(&mut self) -> usize {
        [64, 300, 70_000][self.0.below(3)]
    }

    fn field(&mut self) -> Bytes {
        self.one_of(FIELDS)
    }

    fn member(&mut self) -> Bytes {
        if self.0.below(3) == 0 { self.number(5_000) } else { self.number(30) }
    }

    /// All that `fill_small` may put, so that the key vanishes.
    fn empty_small(&mut self) -> Vec<Bytes> {
        let (name, key) = [("HDEL", "h-small"), ("ZREM", "z-small")][self.0.below(2)];
        let all = ["a", "b", "c"].into_iter().take(2 + self.0.below(2));
        [name, key].into_iter().chain(all).map(|part| Bytes::from_static(part.as_bytes())).collect()
    }

    fn fill_small(&mut self) -> Vec<Bytes> {
        let (name, key) = [("HSET", "h-small"), ("ZADD", "z-small")][self.0.below(2)];
        let (number, letter) = (self.number(9), self.one_of(&["a", "b", "c"]));
        let (first, second) = if name == "HSET" { (letter, number) } else { (number, letter) };
        vec![name.into(), key.into(), first, second]
    }

    fn score(&mut self) -> Bytes {
        match self.0.below(30) {
            0 => self.one_of(&["9007199254740992", "-9007199254740992", "0", "-1", "x", ""]),
            _ => self.number(20),
        }
    }

    fn score_end(&mut self) -> Bytes {
        match self.0.below(20) {
            0 => self.one_of(&["-inf", "+inf", "inf", "x", "(x"]),
            1..4 => "-inf".into(),
            4..6 => "+inf".into(),
            6..12 => format!("({}", self.0.below(25)).into(),
            _ => self.score(),
        }
    }

    fn command(&mut self) -> Vec<Bytes> {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let mut parts = match self.0.below(29) {
            0 if self.0.below(4) == 0 => {
                let mut parts = vec![text("MGET")];
                parts
                    .extend((0..=self.0.below(4)).map(|of| self.key(["t", "h"][of % 2])).collect::<Vec<_>>());
                parts
            }
            0 => vec![text("GET"), self.key("t")],
            1 | 2 => {
                let mut parts = vec![text("SET"), self.key("t"), self.value()];
                match self.0.below(8) {
                    0 => parts.extend([text("PX"), self.one_of(&["1000000", "2000000", "0", "-5", "x"])]),
                    1 => parts.extend([
                        text("EX"),
                        self.one_of(&["1000", "2000", "0", "-5", "9223372036854775807"]),
                    ]),
                    2 if self.0.below(5) == 0 => parts.push(text("PX")),
                    _ => {}
                }
                parts
            }
            3 | 4 => vec![text("SETRANGE"), self.key("t"), self.offset(1_200), self.value()],
            5 | 6 => vec![text("GETRANGE"), self.key("t"), self.index(50), self.index(500)],
            7 => vec![text("APPEND"), self.key("t"), self.value()],
            8 => {
                let end = self.bits_end();
                vec![
                    text("SETBIT"),
                    self.key("t"),
                    self.offset(end),
                    self.one_of(&["0", "1", "1", "1", "0", "2", "x"]),
                ]
            }
            9 => {
                let end = self.bits_end();
                vec![text("GETBIT"), self.key("t"), self.offset(end)]
            }
            10..13 => {
                let mut parts = vec![text("BITCOUNT"), self.key("t")];
                let end = self.bits_end();
                match self.0.below(10) {
                    0 | 1 => {}
                    2 => parts.push(self.index(end)),
                    3 => parts.extend([
                        self.number(end),
                        self.number(end),
                        self.one_of(&["BITS", "BYTE", "byte"]),
                    ]),
                    4 => parts.extend([self.index(end / 8), self.index(end / 8)]),
                    _ => {
                        parts.extend([self.index(end), self.index(end), self.one_of(&["BIT", "BIT", "bit"])]);
                    }
                }
                parts
            }
            13..16 => {
                let mut parts = vec![text("BITOP"), self.one_of(&["AND", "OR", "XOR"]), self.key("t")];
                parts.extend((0..=self.0.below(4)).map(|_| self.key("t")).collect::<Vec<_>>());
                parts
            }
            16 | 17 => {
                let mut parts = vec![text("BITFIELD"), self.key("t")];
                let end = self.bits_end();
                for _ in 0..self.0.below(6) {
                    let width = 1 + self.0.below(63);
                    parts.extend([text("SET"), format!("u{width}").into(), self.offset(end)]);
                    parts.push(match self.0.below(30) {
                        0 => self.one_of(&["x", "-1", "9223372036854775807", "-9223372036854775808"]),
                        _ => (self.0.bits() >> 1 >> (63 - width)).to_string().into(),
                    });
                }
                if self.0.below(60) == 0 {
                    parts.pop();
                }
                parts
            }
            18 => {
                let mut parts = vec![text("HSET"), self.key("h")];
                for _ in 0..=self.0.below(4) {
                    parts.extend([self.field(), self.value()]);
                }
                if self.0.below(40) == 0 {
                    parts.pop();
                }
                parts
            }
            19 => vec![text("HGET"), self.key("h"), self.field()],
            20 => {
                let mut parts = vec![text("HMGET"), self.key("h")];
                parts.extend((0..=self.0.below(5)).map(|_| self.field()).collect::<Vec<_>>());
                parts
            }
            21 => {
                if self.0.below(2) == 0 {
                    return vec![text("HGETALL"), self.key("h")];
                }
                let mut parts = vec![text("HDEL"), self.key("h")];
                parts.extend((0..=self.0.below(3)).map(|_| self.field()).collect::<Vec<_>>());
                parts
            }
            22 | 23 => {
                let mut parts = vec![text("ZADD"), self.key("z")];
                for _ in 0..=self.0.below(5) {
                    parts.extend([self.score(), self.member()]);
                }
                if self.0.below(40) == 0 {
                    parts.pop();
                }
                parts
            }
            24 => {
                if self.0.below(2) == 0 {
                    return vec![text("ZSCORE"), self.key("z"), self.member()];
                }
                let mut parts = vec![text("ZREM"), self.key("z")];
                parts.extend((0..=self.0.below(8)).map(|_| self.member()).collect::<Vec<_>>());
                parts
            }
            25 => {
                let mut parts =
                    vec![text("ZRANGEBYSCORE"), self.key("z"), self.score_end(), self.score_end()];
                match self.0.below(4) {
                    0 => parts.extend([text("LIMIT"), self.index(4), self.index(6)]),
                    1 => parts.extend([text("LIMIT"), self.number(4), self.number(6)]),
                    2 if self.0.below(6) == 0 => parts.push(text("LIMIT")),
                    _ => {}
                }
                parts
            }
            26 => return self.fill_small(),
            27 => return self.empty_small(),
            _ => {
                let kind = ["t", "h", "z"][self.0.below(3)];
                match self.0.below(6) {
                    0 => {
                        let in_ms = self.one_of(&[
                            "1000000",
                            "3000000",
                            "0",
                            "-1",
                            "-9223372036854775808",
                            "9223372036854775807",
                            "x",
                        ]);
                        vec![text("PEXPIRE"), self.key(kind), in_ms]
                    }
                    command => {
                        let name = ["EXISTS", "EXISTS", "PERSIST", "DEL", "UNLINK"][command - 1];
                        if name == "PERSIST" {
                            return vec![text(name), self.key(kind)];
                        }
                        let mut parts = vec![text(name)];
                        parts.extend((0..=self.0.below(2)).map(|_| self.key(kind)).collect::<Vec<_>>());
                        parts
                    }
                }
            }
        };
        if self.0.below(200) == 0 {
            parts.truncate(1);
        }
        parts
    }
}

#[test]
fn the_model_and_redis_answer_random_commands_alike() {
    let mut dice = Random::seeded("the_model_and_redis_answer_random_commands_alike");
    let plain = Plain::start();
    let (mut made, wanted) = (0, calls(20_000));
    let mut errors = 0;
    while made < wanted {
        let seed = dice.bits();
        let mut dice = Random::of(seed);
        let mut pair = Pair::new(&plain, seed);
        for _ in 0..2_000.min(wanted) {
            match dice.below(300) {
                0 => {
                    let key = Maker(&mut dice).key("t");
                    pair.let_expire(&key);
                }
                1 => {
                    let value = Maker(&mut dice).value();
                    let set = [Bytes::from_static(b"SET"), Bytes::from_static(b"silent"), value];
                    pair.run(&SILENT, &set).expect("sets");
                }
                2 => pair.compare_keys(),
                _ => {}
            }
            let command = Maker(&mut dice).command();
            // Numbers as numbers would be read as other values.
            let is_of_values = ["SET", "APPEND", "SETRANGE", "HSET"].iter().any(|name| command[0] == *name);
            let script = if dice.below(2) == 0 && !is_of_values { &AS_NUMBERS } else { &AS_TEXT };
            errors += usize::from(pair.run(script, &command).is_err());
        }
        pair.compare_keys();
        made += 2_000;
    }
    assert!(errors * 100 > made, "errors are compared, too, but there were only {errors} of {made}");
}

/// Scripts whose answers show one conversion or one error each.
const SMALL: &[&str] = &[
    "return 3.99",
    "return -3.99",
    "return 2^53",
    "return {1, 2, nil, 4}",
    "return {1, {2, {3.7, 'x'}}, false, true, ''}",
    "return {}",
    "return {ok = 'fine'}",
    "return true",
    "return false",
    "return nil",
    "return",
    "return 1, 2",
    "return '\\0\\255'",
    "return redis.error_reply('WEIR_NONE there is no such zone')",
    "return redis.error_reply('-WEIR_NONE there is no such zone')",
    "return redis.error_reply('WORD')",
    "return {err = 'SOME error'}",
    "return redis.call('SET', 'k', 'v')",
    "return redis.call('SET', 'k', 'v').ok",
    "redis.call('SET', 'k', 'v')\nredis.call('HGET', 'k', 'f')\nredis.call('SET', 'k', 'w')",
    "local function inner(f) return redis.call('HGET', 'k', f) end\n\nlocal x = inner('f')\nreturn x",
    "redis.call('SET', 'l', 'x')\nlocal t = nil\nreturn t.x",
    "return 1 + {}",
    "return #5",
    "error('something')",
    "error('something', 0)",
    "redis.call()",
    "return redis.call('GET', nil)",
    "return redis.call('GET', true)",
    "return redis.call('GET', {})",
    "return redis.call('GET')",
    "return redis.call('GET', 'k', 'l')",
    "return struct.unpack('>I8', 'short')",
    "return struct.pack('>I2I2', 7)",
    "return struct.pack('>I2', 'seven')",
    "return {struct.unpack('>I2', struct.pack('>I2', '7'))}",
    "return {struct.unpack('>I2i3I1', 'abcdefgh', 2)}",
    "return {type(redis.call('GET', 'none')), type(redis.call('HGET', 'none', 'f')), redis.call('EXISTS', 'none')}",
    "return {type(redis.call('TIME')[1]), #redis.call('TIME')}",
    "return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')",
    "return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')",
    "return string.match(redis.call('INFO', 'replication'), 'role:(%a+)\\r\\nconnected_slaves:(%d+)')",
    "return string.format('%d %.0f %s', 2^53, 2^53 - 1, 1e15)",
    "return {#KEYS, #ARGV}",
    "local t = {}\nfor i = 1, 5000 do t[i] = i end\nreturn {unpack(t, 4900, 5000)}",
    "return {redis.REPL_NONE, redis.REPL_ALL}",
    "redis.call('SET', 'n', 5)\nredis.call('APPEND', 'n', 2^53)\nreturn redis.call('GET', 'n')",
];

#[test]
fn the_model_and_redis_convert_and_fail_alike() {
    let plain = Plain::start();
    let mut pair = Pair::new(&plain, 0);
    for text in SMALL {
        drop(pair.run(&Script::new("small", text), &[]));
    }
    pair.compare_keys();
}

#[test]
fn the_model_and_redis_pack_numbers_alike() {
    const BACK_AND_FORTH: &str = "local numbers = {}
        for i = 2, #ARGV do numbers[i - 1] = tonumber(ARGV[i]) end
        local packed = struct.pack(ARGV[1], unpack(numbers))
        local read = { struct.unpack(ARGV[1], 'xy' .. packed, 3) }
        for i = 1, #read do read[i] = string.format('%.17g', read[i]) end
        return { packed, read }";
    let mut dice = Random::seeded("the_model_and_redis_pack_numbers_alike");
    let (plain, script) = (Plain::start(), Script::new("pack", BACK_AND_FORTH));
    let mut pair = Pair::new(&plain, 0);
    for _ in 0..calls(2_000).min(20_000) {
        let (mut format, mut args) = (">".to_owned(), Vec::new());
        for _ in 0..dice.below(40) {
            let (is_signed, size) = (dice.below(2) == 0, 1 + dice.below(8));
            format.push_str(&format!("{}{size}", if is_signed { 'i' } else { 'I' }));
            // Often too large for its bytes.
            let number = (dice.bits() >> dice.below(64)) >> 1;
            let sign = if dice.below(3) == 0 { "-" } else { "" };
            let fraction = ["", "", ".5"][dice.below(3)];
            args.push(Bytes::from(format!("{sign}{number}{fraction}")));
        }
        args.insert(0, format.into());
        pair.run(&script, &args).expect("packs");
    }
}

/// A server that is a replica of nobody keeps its data, and behaves as every replica does.
#[test]
fn a_replica_hides_expired_keys_and_refuses_to_write() {
    let plain = Plain::start();
    let mut pair = Pair::new(&plain, 0);
    let command = |text: &str| text.split(' ').map(|part| Bytes::from(part.to_owned())).collect::<Vec<_>>();
    pair.run(&AS_TEXT, &command("SET lasting 1")).expect("sets");
    // One step, so that the server does not remove the key before it is a replica.
    pair.real.command(&[b"MULTI"]);
    pair.real.command(&[b"SET", b"brief", b"1", b"PX", b"1"]);
    pair.real.command(&[b"REPLICAOF", b"127.0.0.1", b"1"]);
    pair.real.command(&[b"EXEC"]);
    let since = pair.real.unix_us();
    let process = Process { unix_us: since, run_id: "", replid: "", replicas: 0, is_primary: true };
    let brief = command("SET brief 1 PX 1");
    pair.interpreter.run(&mut pair.data, &AS_TEXT, &[], &brief, &process).0.expect("sets");
    while pair.real.unix_us() < since + 3_000 {}
    let same = |pair: &mut Pair, is_primary, text: &str| {
        let process =
            Process { unix_us: pair.real.unix_us(), run_id: "", replid: "", replicas: 0, is_primary };
        let args = command(text);
        let real = pair.real.run(&AS_TEXT, &[], &args);
        let (model, effects) = pair.interpreter.run(&mut pair.data, &AS_TEXT, &[], &args, &process);
        assert_eq!(real, model, "{text}");
        let Value::Int(keys) = pair.real.command(&[b"DBSIZE"]) else { panic!("DBSIZE counts") };
        assert_eq!(usize::try_from(keys), Ok(pair.data.keys()), "keys after {text}");
        (model, effects)
    };
    for text in ["GET lasting", "GET brief", "EXISTS brief lasting", "BITCOUNT brief"] {
        assert!(same(&mut pair, false, text).1.is_empty());
    }
    assert_eq!(pair.data.keys(), 2, "a replica waits for its primary to delete the key");
    for text in ["SET other 1", "DEL brief", "SETBIT lasting 0 1", "PEXPIRE lasting 1000", "HSET h f v"] {
        let (reply, effects) = same(&mut pair, false, text);
        assert!(reply.is_err_and(|error| error.starts_with("READONLY")) && effects.is_empty());
    }
    let mut copy = pair.data.clone();
    assert_eq!(copy.expire(pair.real.unix_us()).len(), 1, "{:?}", copy.dump());
    assert_eq!(copy.keys(), 1);
    pair.real.command(&[b"REPLICAOF", b"NO", b"ONE"]);
    let (reply, effects) = same(&mut pair, true, "GET brief");
    assert_eq!((reply, pair.data.keys()), (Ok(Value::Nil), 1));
    assert_eq!(format!("{effects:?}"), "[DEL brief]");
}
