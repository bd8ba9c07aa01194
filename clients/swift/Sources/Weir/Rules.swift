// The rules of one place, without a network and without timers: what happened comes in, and what to do comes out.
//
// Invariants: only the server ends a place. At most one call asks for a place at a time. The told wait grows only together with a reason.
// The device's clock decides only how old stored figures are, and to ask sooner.

import Foundation

/// No zone keeps a place longer than this without a poll, in milliseconds. If the server says that an older place is gone, it belonged to
/// an earlier visit, and a new one is taken without asking.
private let oldMs = 3_600_000.0

/// The key of a place that is being taken is stored under the place's name and this.
private let joinKeySuffix = " key"

/// For how long a later start uses that key again, in milliseconds. The server remembers keys for two minutes.
private let joinKeyMs = 100_000.0

/// A key may be from this far in the future, in milliseconds: the device's clock was put right meanwhile.
private let joinKeyAheadMs = 10_000.0

/// How often the end of a place is told at most, where it is not known whether Weir has heard of it.
private let mostLeaves = 6

/// A pause before the next time that is longer, in milliseconds, is not worth it: the place or visit ends by itself.
private let longestLeavePauseMs = 60_000.0

/// What a call sends.
struct Body: Encodable, Equatable {
    let zoneId: String
    var token: String?
    var idempotencyKey: String?
}

/// What the owner of the rules does for them. Numbers tell calls and pauses apart.
enum Order {
    /// Makes a call, and says `answered`.
    case call(Int, name: String, body: Body)
    /// Says `woke` after this many milliseconds.
    case wake(Int, afterMs: Double)
    /// Ends the call and the timer of this number.
    case end(Int)
    case show(Place.State)
}

/// Whether Weir takes a text as a key. Whoever can write into the storage may have written anything.
private func isKey(_ text: Substring) -> Bool {
    (22...64).contains(text.utf8.count) && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "_" || $0 == "-") }
}

struct Rules {
    /// What a call is for.
    private enum Purpose: Equatable {
        case poll
        case join
        /// The first call of somebody who does not wait for it any more. Whoever ends it loses its reply, and with it a place. So it goes
        /// on, and the place that its reply brings is given up, or kept for the next start. It has this key.
        case lateJoin(isKept: Bool, key: String?)
        case leave(Leave)
    }

    /// The end of a place, which Weir has not heard yet, and how often it was told in vain. Without a token, it is the place that a `wait`
    /// with the key took, and whose reply was lost.
    private struct Leave: Equatable {
        var token: String?
        var key: String?
        var failures = 0
    }

    private struct Pause {
        let number: Int
        let ms: Double
        let steadyMs: Double
        let deviceMs: Double
    }

    private let platform: Platform
    private let zone: String
    private let key: String
    private(set) var state = Place.State.joining(trouble: nil)
    private(set) var isStopped = false
    private var orders: [Order] = []
    private var lastNumber = 0
    private var calls: [Int: Purpose] = [:]
    private var pause: Pause?
    /// The ends of places that are told again, by the number of their timer.
    private var leaves: [Int: Leave] = [:]
    private var kept: Kept?
    /// The text in the storage that was read or written last. It is not read again.
    private var stored: String?
    /// The key of the place that is being taken. It is in the storage, too: the reply may be lost with the process.
    private var joinKey: String?
    /// Whether that key was sent before: the place that it has may have ended before anybody saw it.
    private var isKeySent = false
    /// Whether the reply to the last `wait` with it is not known: there may be a place that only the key finds.
    private var isJoinLost = false
    /// The key of such a place. It is not sent again, also if the storage does not let it go.
    private var goneKey: String?
    /// When the wait in `kept` was told, by the steady clock.
    private var toldAtMs = 0.0
    /// Whether the place in the storage is from long ago, by the device's clock.
    private var isOld = false
    /// The storage refused something, so what it has may be from long ago: it is not read any more.
    private var isStorageLost = false
    private var failures = 0
    private var isOffline = false

    /// `server` ends with a slash.
    init(platform: Platform, server: String, zone: String) {
        (self.platform, self.zone, key) = (platform, zone, "weir \(server) \(zone)")
    }

    /// What is to be done, in this order.
    mutating func takeOrders() -> [Order] {
        defer { orders = [] }
        return orders
    }

    // MARK: What happens

    /// Resumes the place in the storage, or takes one.
    mutating func ask() {
        load()
        if let token = kept?.token {
            call("entry", .poll, Body(zoneId: zone, token: token))
        } else {
            call("wait", .join, Body(zoneId: zone, idempotencyKey: keyOfJoin()))
        }
    }

    mutating func answered(_ number: Int, _ result: Result<Reply, any Error>) {
        guard let purpose = calls.removeValue(forKey: number) else { return }
        orders.append(.end(number))
        let answer = result.flatMap { reply in
            Result { () throws -> Answer in
                guard (200..<300).contains(reply.status) else { throw Problem(reply) }
                do { return try Answer(body: reply.body) } catch { throw Unreadable(what: "\(error)") }
            }
        }
        switch purpose {
        case .poll, .join:
            switch answer {
            case .success(let answer): take(answer)
            case .failure(let fault): fail(fault)
            }
        case .lateJoin(let isKept, let key):
            switch answer {
            case .success(let answer) where isKept: keep(Kept(token: answer.token, heardMs: platform.deviceMs()))
            case .success(let answer): tell(Leave(token: answer.token))
            case .failure(let fault): if !isKept && Problem(of: fault).isUnanswered { tell(Leave(key: key)) }
            }
        case .leave(var leave):
            if leave.token == nil, case .success(let answer) = answer {
                leave.token = answer.token
                tell(leave)
            } else {
                leaveAgain(leave, result)
            }
        }
    }

    mutating func woke(_ number: Int) {
        if pause?.number == number {
            wake()
        } else if let leave = leaves.removeValue(forKey: number) {
            orders.append(.end(number))
            tell(leave)
        } else if calls[number] != nil {
            answered(number, .failure(Problem(code: "offline")))
        }
    }

    /// The user looks at the app again: timers may be late.
    mutating func shown() {
        guard let pause else { return }
        // The steady clock may stand still while the device sleeps, so the device's own clock counts if it shows more.
        let passedMs = max(platform.steadyMs() - pause.steadyMs, platform.deviceMs() - pause.deviceMs)
        if passedMs >= pause.ms { wake() }
    }

    /// There may be a network again.
    mutating func online() {
        if isOffline { wake() } else { shown() }
    }

    mutating func anew() {
        if isStopped { return }
        switch state {
        case .joining, .waiting: return
        case .entered, .ended, .left: break
        }
        end(isLateKept: true)
        keep(nil)
        failures = 0
        show(.joining(trouble: nil))
        ask()
    }

    mutating func leave() {
        if isStopped { return }
        let (token, key) = (kept?.token, isJoinLost && !calls.values.contains(.join) ? joinKey : nil)
        end(isLateKept: false)
        keep(nil)
        if token != nil || key != nil { tell(Leave(token: token, key: key)) }
        show(.left)
    }

    mutating func stop() {
        if isStopped { return }
        end(isLateKept: true)
        isStopped = true
    }

    // MARK: Calls and pauses

    private mutating func number() -> Int {
        lastNumber += 1
        return lastNumber
    }

    private mutating func call(_ name: String, _ purpose: Purpose, _ body: Body) {
        let number = number()
        calls[number] = purpose
        orders += [.call(number, name: name, body: body), .wake(number, afterMs: slowestMs)]
    }

    private mutating func sleep(_ ms: Double) {
        let number = number()
        pause = Pause(number: number, ms: ms, steadyMs: platform.steadyMs(), deviceMs: platform.deviceMs())
        orders.append(.wake(number, afterMs: ms))
    }

    private mutating func wake() {
        guard let pause else { return }
        orders.append(.end(pause.number))
        self.pause = nil
        ask()
    }

    /// Asks no more.
    private mutating func end(isLateKept: Bool) {
        if let pause { orders.append(.end(pause.number)) }
        pause = nil
        for (number, purpose) in calls {
            switch purpose {
            case .join:
                calls[number] = .lateJoin(isKept: isLateKept, key: joinKey)
            case .poll:
                calls[number] = nil
                orders.append(.end(number))
            case .lateJoin, .leave: break
            }
        }
    }

    private mutating func tell(_ leave: Leave) {
        let body = Body(zoneId: zone, token: leave.token, idempotencyKey: leave.token == nil ? leave.key : nil)
        call(leave.token == nil ? "wait" : "leave", .leave(leave), body)
    }

    /// Tells Weir again that the place or visit is over, if it has not heard it: a few times, and also after `stop()`.
    private mutating func leaveAgain(_ leave: Leave, _ result: Result<Reply, any Error>) {
        var problem = Problem(code: "offline")
        if case .success(let reply) = result {
            if reply.status == 204 { return }
            problem = Problem(reply)
        }
        let pauseMs = untilRetry(problem, failures: leave.failures, random: platform.random)
        // If Weir never hears it, the place is free after the zone's idle time. Any other refusal would come again.
        if problem.action != .retry || leave.failures + 1 >= mostLeaves || pauseMs > longestLeavePauseMs { return }
        let number = number()
        leaves[number] = Leave(token: leave.token, key: leave.key, failures: leave.failures + 1)
        orders.append(.wake(number, afterMs: pauseMs))
    }

    /// The key of this `wait`, which is the same until the place is known: whoever sends it again gets the same place.
    private mutating func keyOfJoin() -> String {
        if let joinKey { return joinKey }
        let nowMs = platform.deviceMs()
        let found = (try? platform.storage?.text(for: key + joinKeySuffix))?.split(separator: " ") ?? []
        let made: String
        let isRecent = found.count == 2 && Double(found[1]).map { (-joinKeyAheadMs..<joinKeyMs).contains(nowMs - $0) } == true
        isKeySent = isRecent && isKey(found[0]) && String(found[0]) != goneKey
        isJoinLost = false
        if isKeySent {
            made = String(found[0])
        } else {
            made = platform.newKey()
            // Without storage, the key lasts as long as the process.
            try? platform.storage?.set("\(made) \(nowMs)", for: key + joinKeySuffix)
        }
        joinKey = made
        return made
    }

    // MARK: Answers

    private mutating func take(_ answer: Answer) {
        (failures, isOffline, isJoinLost) = (0, false, false)
        switch answer {
        case .enters(let token, let pass):
            let again = kept?.hasEntered == true
            keep(Kept(token: token, heardMs: platform.deviceMs(), hasEntered: true))
            show(.entered(Place.Entry(pass: pass, again: again)))
        case .waits(let token, let told):
            // One instant for both, so that what was just told is shown as it was told.
            let nowMs = platform.steadyMs()
            keepWaiting(told, token, nowMs)
            showWaiting(nil, nowMs)
            sleep(untilPoll(periodMs: told.periodMs, random: platform.random()))
        }
    }

    private mutating func keepWaiting(_ told: Told, _ token: String, _ nowMs: Double) {
        let earlier = kept?.figures
        // Before a draw nobody has a rank: it says how many wait.
        let isUndrawn = told.reason == .draw
        let first = isUndrawn ? 0 : max(earlier?.first ?? 0, told.rank)
        var (eta, reason) = (told.eta, told.reason)
        // Each range is a new estimate. If its end moves back by more than the server's own tolerance for the told wait, 2 s and a tenth,
        // that is a reason. Less is not shown.
        if var next = eta, let before = etaAt(nowMs), reason == nil {
            if next.high > before.high + 2 + next.high / 10 {
                reason = .unsure
            } else {
                next.seconds = min(next.seconds, before.seconds)
                next.high = max(next.seconds, min(next.high, before.high))
                next.low = min(next.low, next.seconds)
                eta = next
            }
        }
        toldAtMs = nowMs
        let figures = Figures(
            rank: told.rank,
            first: first,
            progress: isUndrawn ? 0 : max(earlier?.progress ?? 0, 1 - Double(told.rank) / (Double(first) + 1)),
            eta: eta,
            reason: reason,
            isStale: told.isStale,
            opensMs: told.opensInMs,
            stock: told.stock,
            isBeyondStock: told.isBeyondStock
        )
        keep(Kept(token: token, heardMs: platform.deviceMs(), figures: figures))
    }

    /// The wait that was told, from this time of the steady clock.
    private func etaAt(_ nowMs: Double) -> Estimate? {
        let passed = (nowMs - toldAtMs) / 1_000
        return kept?.figures?.eta.map { Estimate(low: $0.low - passed, seconds: $0.seconds - passed, high: $0.high - passed) }
    }

    private mutating func showWaiting(_ trouble: Trouble?, _ nowMs: Double) {
        guard let figures = kept?.figures else { return show(.joining(trouble: trouble)) }
        func shown(_ value: Double) -> Int { Int(min(max(0, value), mostCount).rounded()) }
        show(.waiting(Place.Waiting(
            rank: figures.rank,
            eta: etaAt(nowMs).map { Place.Eta(low: shown($0.low), seconds: shown($0.seconds), high: shown($0.high)) },
            progress: figures.progress,
            reason: figures.reason,
            isStale: figures.isStale,
            opensInMs: shown(figures.opensMs - (nowMs - toldAtMs)),
            stock: figures.stock,
            isBeyondStock: figures.isBeyondStock,
            trouble: trouble
        )))
    }

    private mutating func fail(_ fault: any Error) {
        let problem = Problem(of: fault)
        isJoinLost = kept == nil && problem.isUnanswered
        // A user who entered, or waited long ago, and comes back starts again.
        if problem.action == .newPlace && (kept?.hasEntered == true || isOld) {
            keep(nil)
            return sleep(0)
        }
        // The reply to the first `wait` was lost, and the place ended before the user saw it. The new one has another key.
        if problem.action == .newPlace && kept == nil && joinKey != nil && isKeySent {
            goneKey = joinKey
            keep(nil)
            return sleep(0)
        }
        if problem.action != .retry {
            // No place was taken, so the next start asks with another key.
            if kept == nil { dropJoinKey() }
            return show(.ended(problem.trouble(retryMs: 0)))
        }
        let retryMs = untilRetry(problem, failures: failures, random: platform.random)
        failures += 1
        isKeySent = true
        isOffline = problem.code == "offline"
        showWaiting(problem.trouble(retryMs: retryMs), platform.steadyMs())
        sleep(retryMs)
    }

    private mutating func show(_ state: Place.State) {
        self.state = state
        orders.append(.show(state))
    }

    // MARK: The storage

    /// Takes over what the storage has, if it is not known yet. Without storage, the place lasts as long as the process.
    private mutating func load() {
        guard !isStorageLost, let text = (try? platform.storage?.text(for: key)) ?? nil, text != stored, let found = Kept(text: text) else { return }
        // Before a new start, only the device's clock measured time. If it was set back meanwhile, the told times do not count any more.
        let ageMs = kept == nil ? platform.deviceMs() - found.heardMs : 0
        isOld = ageMs >= oldMs
        toldAtMs = platform.steadyMs() - max(0, ageMs)
        (kept, stored) = (found, text)
        if ageMs < 0 || isOld { kept?.figures?.eta = nil }
        if ageMs < 0 { kept?.figures?.opensMs = 0 }
    }

    /// At once, because the system may end the app.
    private mutating func keep(_ place: Kept?) {
        let text = place?.text
        (kept, isOld) = (place, false)
        // The text of a place that is over stays known: a storage that does not remove it brings the place back to nobody.
        if let text { stored = text }
        do {
            try platform.storage?.set(text, for: key)
        } catch {
            isStorageLost = true
            // There is no room. An older text would say of an entered place that its pass is new.
            if place?.hasEntered == true { try? platform.storage?.set(nil, for: key) }
        }
        // Also where there is no room for the place: with the key, each start would get its pass as a new one.
        dropJoinKey()
    }

    /// No place is being taken any more.
    private mutating func dropJoinKey() {
        if joinKey == nil { return }
        joinKey = nil
        do { try platform.storage?.set(nil, for: key + joinKeySuffix) } catch { isStorageLost = true }
    }
}

extension Answer {
    var token: String {
        switch self {
        case .enters(let token, _), .waits(let token, _): return token
        }
    }
}
