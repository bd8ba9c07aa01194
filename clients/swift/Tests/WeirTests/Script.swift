// A case of clients/conformance/cases.json as a server plays it, in the same way as clients/conformance/script.mjs: it judges each call,
// and says what to reply. It knows no clock and no network.
//
// Invariant: a fault is kept when it happens, and a case passes only without faults and after its last step.

import Foundation
import WeirForms

@testable import Weir

/// The shared cases.
func readCases() throws -> [JSON] {
    let clients = (0..<4).reduce(URL(fileURLWithPath: #filePath)) { path, _ in path.deletingLastPathComponent() }
    return try JSON(data: Data(contentsOf: clients.appendingPathComponent("conformance/cases.json"))).list ?? []
}

struct Script {
    private(set) var faults: [String] = []
    private var steps: ArraySlice<JSON>
    private var repliedAtMs: Double?
    /// The key of the place that the client is taking, and the keys of places that it had or gave up.
    private var key: String?
    private var usedKeys: Set<String> = []
    /// The key of the last place that the client had or gave up.
    private var lastKey: String?

    init(_ one: JSON) {
        steps = (one["steps"]?.list ?? [])[...]
    }

    /// Takes the next step if it is not a call: what the user, the app or the clock does.
    mutating func action() -> JSON? {
        guard let step = steps.first, step["call"] == nil else { return nil }
        if step["user"] != nil { endKey() }
        return steps.removeFirst()
    }

    /// Judges a call at a time. Returns its step: with the reply, and perhaps with what the user does before the reply.
    mutating func call(_ call: String, _ body: JSON, atMs: Double) -> JSON {
        guard let step = steps.popFirst(), let wanted = step["call"]?.text else {
            faults.append("an unexpected call of \(call) with \(body)")
            return .fields(["reply": .fields(["problem": .fields(["status": .number(404), "code": .text("unexpected")])])])
        }
        if wanted != call { faults.append("called \(call) instead of \(wanted)") }
        if body["zoneId"] != .text("Z") { faults.append("\(call) is not for the zone Z: \(body)") }
        let token = wanted == "wait" ? nil : step["token"]
        let isRight = body["token"] == token || (wanted != "wait" && token == nil)
        if !isRight { faults.append("\(call) came with \(body), not with the token \(token.map(String.init(describing:)) ?? "none")") }
        let isLate = step["late"] == .bool(true)
        if call == "wait" && !isLate { judgeKey(body["idempotencyKey"]?.text) }
        // It looks for a place that nobody waits for any more.
        if isLate && body["idempotencyKey"]?.text != lastKey { faults.append("wait came with another key than \(lastKey ?? "none")") }
        // Who asks for a place has taken it, and whoever leaves takes it no more. A place that is gone has another key than the next one.
        let isGone = step["reply"]?["problem"]?["code"]?.text == "gone"
        if call != "wait" || step["user"] != nil || isGone { endKey() }
        if let limits = step["after_ms"]?.list?.compactMap(\.number), let repliedAtMs {
            let after = atMs - repliedAtMs
            let isInTime = (limits[0] - 0.001...limits[1] + 0.001).contains(after)
            if !isInTime { faults.append("\(call) came \(after) ms after the last reply, not within \(limits)") }
        }
        return step
    }

    /// A `wait` is repeated with its key until its place is known, and no key is used for two places.
    private mutating func judgeKey(_ sent: String?) {
        let sent = sent ?? ""
        let isKey = (22...64).contains(sent.count) && sent.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "_-".contains($0)) }
        if !isKey { faults.append("wait came with the key \(sent)") }
        if usedKeys.contains(sent) { faults.append("wait came with the key \(sent) of an earlier place") }
        if let key, key != sent { faults.append("wait was repeated with the key \(sent), not \(key)") }
        key = sent
    }

    private mutating func endKey() {
        if let key {
            usedKeys.insert(key)
            lastKey = key
        }
        key = nil
    }

    /// The reply to the last call was sent at this time.
    mutating func replied(atMs: Double) {
        repliedAtMs = atMs
    }

    /// Compares what the client said with the case. Returns all faults of the case.
    func judge(_ states: [JSON], _ wanted: [JSON]) -> [String] {
        var all = faults
        if let step = steps.first { all.append("the client did not come to: \(step)") }
        func lines(_ states: [JSON]) -> String { states.map { "\n  \($0)" }.joined() }
        let isSame = states.count == wanted.count && zip(states, wanted).allSatisfy { $0.fits($1) }
        if !isSame { all.append("the client said\(lines(states))\ninstead of\(lines(wanted))") }
        return all
    }
}

extension Reply {
    /// The reply of a step. Throws for one that never comes whole.
    init(_ reply: JSON?) throws {
        guard let reply, reply.fields != nil else { throw URLError(.networkConnectionLost) }
        let headers = (reply["headers"]?.fields ?? [:]).compactMapValues { lines in
            lines.text ?? lines.list?.compactMap(\.text).joined(separator: ", ")
        }
        func json(_ status: Int, _ fields: [String: JSON]) throws -> Reply {
            Reply(status: status, header: { headers[$0] }, body: try JSON.fields(fields).data)
        }
        func status(_ fields: JSON?) -> Int { Int(fields?["status"]?.number ?? 0) }
        if let told = reply["waiting"]?.fields {
            let usual: [String: JSON] = ["etaSeconds": .number(30), "etaRange": .list([.number(20), .number(40)]), "stale": .bool(false)]
            let waiting = JSON.fields(usual.merging(told) { $1 })
            self = try json(200, ["canEnter": .bool(false), "token": told["token"] ?? .null, "waiting": waiting])
        } else if let entered = reply["entered"]?.fields {
            self = try json(200, entered.merging(["canEnter": .bool(true)]) { $1 })
        } else if let problem = reply["problem"]?.fields {
            let type = "urn:weir:problem:\(problem["code"]?.text ?? "")"
            let usual: [String: JSON] = ["type": .text(type), "title": problem["code"] ?? .null]
            self = try json(status(reply["problem"]), usual.merging(problem) { $1 })
        } else {
            let raw = reply["raw"]
            self.init(status: status(raw), header: { headers[$0] }, body: Data((raw?["body"]?.text ?? "").utf8))
        }
    }
}
