// A machine in virtual time, on which the rules of a place run. Nothing waits for real time.
//
// Invariant: the time moves only when nothing is left to do at the present one.

import Foundation
import WeirForms

@testable import Weir

/// Texts by key, in memory.
final class Texts: Storage {
    private let all = Locked<[String: String]>([:])

    func text(for key: String) -> String? {
        all.with { $0[key] }
    }

    func set(_ text: String?, for key: String) {
        all.with { $0[key] = text }
    }
}

/// Random numbers that are the same for the same seed.
struct Seeded: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = (state ^ (state >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}

/// What a test says of time and chance.
final class Clocks: Sendable {
    private let inside = Locked((nowMs: 0.0, deviceOffsetMs: 1_700_000_000_000.0, random: Seeded(state: 0), keys: 0))

    init(seed: UInt64 = 1) {
        inside.with { $0.random = Seeded(state: seed) }
    }

    var nowMs: Double {
        get { inside.with { $0.nowMs } }
        set { inside.with { $0.nowMs = newValue } }
    }

    var deviceMs: Double { inside.with { $0.nowMs + $0.deviceOffsetMs } }

    func setDevice(aheadMs: Double) {
        inside.with { $0.deviceOffsetMs += aheadMs }
    }

    /// A platform without a network.
    func platform(_ storage: (any Storage)?) -> Platform {
        Platform(
            post: { _, _ in throw URLError(.notConnectedToInternet) },
            storage: storage,
            steadyMs: { self.nowMs },
            deviceMs: { self.deviceMs },
            random: { self.inside.with { Double.random(in: 0..<1, using: &$0.random) } },
            newKey: {
                self.inside.with { inside in
                    inside.keys += 1
                    return "key-of-a-test-number-\(1_000 + inside.keys)"
                }
            }
        )
    }
}

/// Plays one case to the rules.
struct World {
    private let one: JSON
    private let clocks: Clocks
    private var script: Script
    private var rules: Rules
    private var orders: [Order] = []
    private var timers: [Int: Double] = [:]
    private var states: [JSON] = []
    private let storage = Texts()
    /// The place in the storage.
    private let place = "weir https://weir.test/ Z"

    init(_ one: JSON, seed: UInt64) throws {
        self.one = one
        clocks = Clocks(seed: seed)
        script = Script(one)
        if case .fields(var kept)? = one["kept"] {
            let ageMs = kept.removeValue(forKey: "age_ms")?.number ?? 0
            kept["heard"] = .number(clocks.deviceMs - ageMs)
            storage.set("\(JSON.fields(kept))", for: place)
        }
        if let key = one["key"], let text = key["text"]?.text, let ageMs = key["age_ms"]?.number {
            storage.set("\(text) \(clocks.deviceMs - ageMs)", for: "\(place) key")
        }
        rules = Rules(platform: clocks.platform(storage), server: "https://weir.test/", zone: "Z")
    }

    /// To the end: then the client waits for nothing more. Returns the faults.
    mutating func play() throws -> [String] {
        try happen { $0.ask() }
        while true {
            try act()
            guard let (number, atMs) = timers.min(by: { ($0.value, $0.key) < ($1.value, $1.key) }) else { break }
            timers[number] = nil
            clocks.nowMs = max(clocks.nowMs, atMs)
            try happen { $0.woke(number) }
        }
        let faults = script.judge(states, one["states"]?.list ?? [])
        let leftKey = storage.text(for: "\(place) key") != nil && states.last?["kind"] != .text("joining")
        return leftKey ? faults + ["it left its key in the storage"] : faults
    }

    private mutating func happen(_ what: (inout Rules) -> Void) throws {
        what(&rules)
        orders += rules.takeOrders()
        while !orders.isEmpty {
            switch orders.removeFirst() {
            case .call(let number, let name, let body): try call(number, name, body)
            case .wake(let number, let ms): timers[number] = clocks.nowMs + ms
            case .end(let number): timers[number] = nil
            case .show(let state): states.append(JSON(state))
            }
        }
    }

    private mutating func call(_ number: Int, _ name: String, _ body: Body) throws {
        let step = script.call(name, try JSON(data: JSONEncoder().encode(body)), atMs: clocks.nowMs)
        if let user = step["user"]?.text { try self.user(user) }
        script.replied(atMs: clocks.nowMs)
        switch step["reply"]?.text {
        case "silent": break
        case "endless": try happen { $0.answered(number, .failure(Unreadable(what: "too long"))) }
        default: try happen { rules in rules.answered(number, Result { try Reply(step["reply"]) }) }
        }
    }

    private mutating func user(_ what: String) throws {
        try happen { if what == "leave" { $0.leave() } else { $0.anew() } }
    }

    /// Actions happen when everything before them has been heard.
    private mutating func act() throws {
        while let step = script.action() {
            if let user = step["user"]?.text { try self.user(user) }
            if let aheadMs = step["clock"]?["device_ms"]?.number { clocks.setDevice(aheadMs: aheadMs) }
            guard let signal = step["signal"]?.text else { continue }
            // Times count from the last thing that happened.
            if one["slow"] != .bool(true) { script.replied(atMs: clocks.nowMs) }
            try happen { if signal == "online" { $0.online() } else { $0.shown() } }
        }
    }
}
