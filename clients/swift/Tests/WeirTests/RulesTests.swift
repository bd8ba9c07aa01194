// What no case of clients/conformance says: a start after a lost reply, and a stop while the first reply is on its way.

import WeirForms
import XCTest

@testable import Weir

/// It has a place of long ago, and does not let it go.
private struct Stubborn: Storage {
    func text(for key: String) -> String? { #"{"token":"old","heard":1}"# }

    func set(_ text: String?, for key: String) {}
}

/// It has the key of a `wait` whose reply was lost, and does not let it go.
private struct StubbornKey: Storage {
    let ms: Double

    func text(for key: String) -> String? { key.hasSuffix(" key") ? "the-key-of-a-lost-reply \(ms)" : nil }

    func set(_ text: String?, for key: String) {}
}

/// It has room for the key of a `wait`, and not for a place.
private struct Full: Storage {
    struct NoRoom: Error {}

    let texts: Texts

    func text(for key: String) -> String? { texts.text(for: key) }

    func set(_ text: String?, for key: String) throws {
        if text != nil && !key.hasSuffix(" key") { throw NoRoom() }
        texts.set(text, for: key)
    }
}

final class RulesTests: XCTestCase {
    private let key = "weir https://weir.test/ Z"

    /// The number and the body of the only call among the orders.
    private func call(_ rules: inout Rules) throws -> (number: Int, body: Body) {
        let calls = rules.takeOrders().compactMap { order -> (Int, Body)? in
            if case .call(let number, _, let body) = order { return (number, body) }
            return nil
        }
        XCTAssertEqual(calls.count, 1)
        return try XCTUnwrap(calls.first)
    }

    private func reply(_ body: String) -> Result<Reply, any Error> {
        .success(Reply(status: 200, header: { _ in nil }, body: Data(body.utf8)))
    }

    func testThePlaceOfALateFirstReplyIsKeptAfterAStop() throws {
        let storage = Texts()
        var rules = Rules(platform: Clocks().platform(storage), server: "https://weir.test/", zone: "Z")
        rules.ask()
        let first = try call(&rules)
        rules.stop()
        rules.answered(first.number, reply(#"{"canEnter":false,"token":"t","waiting":{"rank":2,"pollingPeriod":500}}"#))
        XCTAssertEqual(storage.text(for: key).flatMap(Kept.init(text:))?.token, "t")
        rules.anew()
        rules.leave()
        rules.online()
        XCTAssert(rules.takeOrders().allSatisfy { if case .end = $0 { true } else { false } }, "it asks and says nothing more")
    }

    func testAStartAfterALostFirstReplyTakesTheSamePlaceForAWhile() throws {
        for (laterMs, isSame) in [(2_000.0, true), (99_000, true), (120_000, false), (-2_000, true), (-60_000, false)] {
            let (clocks, storage) = (Clocks(), Texts())
            let keys = try (0..<2).map { _ in
                var rules = Rules(platform: clocks.platform(storage), server: "https://weir.test/", zone: "Z")
                rules.ask()
                let key = try call(&rules).body.idempotencyKey
                rules.stop()
                clocks.setDevice(aheadMs: laterMs)
                return key
            }
            XCTAssertEqual(keys[0] == keys[1], isSame, "\(laterMs) ms later: \(keys)")
        }
    }

    func testAStorageWithRoomForTheKeyAndNotForThePlaceDoesNotBringAPassBackAsANewOne() throws {
        for before in [nil, #"{"token":"t0","heard":1}"#] {
            let (clocks, texts) = (Clocks(), Texts())
            texts.set(before, for: key)
            let bodies = try (0..<2).map { _ in
                var rules = Rules(platform: clocks.platform(Full(texts: texts)), server: "https://weir.test/", zone: "Z")
                rules.ask()
                let first = try call(&rules)
                rules.answered(first.number, reply(#"{"canEnter":true,"token":"t","pass":"p"}"#))
                rules.stop()
                return first.body
            }
            XCTAssertEqual(bodies[0].token, before == nil ? nil : "t0")
            XCTAssertNil(bodies[1].token, "the second start takes a new place")
            XCTAssertNotEqual(bodies[0].idempotencyKey, bodies[1].idempotencyKey)
        }
    }

    func testAPlaceThatTheStorageDoesNotLetGoIsAskedForOnce() throws {
        var rules = Rules(platform: Clocks().platform(Stubborn()), server: "https://weir.test/", zone: "Z")
        rules.ask()
        let gone = Reply(status: 410, header: { _ in nil }, body: Data(#"{"type":"urn:weir:problem:gone","code":"gone"}"#.utf8))
        rules.answered(try call(&rules).number, .success(gone))
        let pauses = rules.takeOrders().compactMap { order -> Int? in if case .wake(let number, _) = order { number } else { nil } }
        rules.woke(try XCTUnwrap(pauses.first))
        XCTAssertNil(try call(&rules).body.token)
    }

    func testAKeyWhosePlaceEndedUnseenIsSentNoMoreAlsoIfTheStorageDoesNotLetItGo() throws {
        let clocks = Clocks()
        let platform = clocks.platform(StubbornKey(ms: clocks.deviceMs))
        var rules = Rules(platform: platform, server: "https://weir.test/", zone: "Z")
        let gone = Reply(status: 410, header: { _ in nil }, body: Data(#"{"type":"urn:weir:problem:gone","code":"gone"}"#.utf8))
        rules.ask()
        let first = try call(&rules)
        XCTAssertEqual(first.body.idempotencyKey, "the-key-of-a-lost-reply")
        rules.answered(first.number, .success(gone))
        let pauses = rules.takeOrders().compactMap { order -> Int? in if case .wake(let number, _) = order { number } else { nil } }
        rules.woke(try XCTUnwrap(pauses.first))
        let second = try call(&rules)
        XCTAssertNotEqual(second.body.idempotencyKey, "the-key-of-a-lost-reply")
        rules.answered(second.number, .success(gone))
        guard case .ended(let trouble) = rules.state else { return XCTFail("\(rules.state)") }
        XCTAssertEqual(trouble.action, .newPlace)
    }

    func testAPlaceOfAnotherVersionIsResumedWithoutItsFigures() throws {
        let (clocks, storage) = (Clocks(), Texts())
        storage.set(#"{"token":"t5","heard":\#(clocks.deviceMs),"rank":"many","weather":"fine"}"#, for: key)
        var rules = Rules(platform: clocks.platform(storage), server: "https://weir.test/", zone: "Z")
        rules.ask()
        XCTAssertEqual(try call(&rules).body.token, "t5")
    }

    func testFiguresOutliveANewStart() throws {
        let (clocks, storage) = (Clocks(), Texts())
        var rules = Rules(platform: clocks.platform(storage), server: "https://weir.test/", zone: "Z")
        rules.ask()
        let told = #""rank":9,"pollingPeriod":500,"etaSeconds":60,"etaRange":[50,70],"stock":{"texts":"s1","remaining":{"A":3,"B":null}},"beyondStock":true"#
        rules.answered(try call(&rules).number, reply(#"{"canEnter":false,"token":"t","waiting":{\#(told)}}"#))
        guard case .waiting(let before) = rules.state else { return XCTFail("\(rules.state)") }
        XCTAssertEqual(before.stock, Place.Stock(texts: "s1", remaining: ["A": 3, "B": nil] as [String: Int?]))
        XCTAssert(before.isBeyondStock)

        clocks.nowMs += 10_000
        rules = Rules(platform: clocks.platform(storage), server: "https://weir.test/", zone: "Z")
        rules.ask()
        rules.answered(try call(&rules).number, .failure(URLError(.networkConnectionLost)))
        guard case .waiting(let after) = rules.state else { return XCTFail("\(rules.state)") }
        XCTAssertEqual(after.eta, Place.Eta(low: 40, seconds: 50, high: 60))
        XCTAssertEqual(after.stock, before.stock)
        XCTAssertEqual(after.trouble?.code, "offline")
    }

    func testWhatWeirWouldNotSendIsRefused() {
        let texts = [
            "", "null", "[]", "{}", #"{"canEnter":1,"token":"t","pass":"p"}"#, #"{"canEnter":true,"token":"t"}"#,
            #"{"canEnter":true,"token":"","pass":"p"}"#, #"{"canEnter":false,"token":"t","waiting":{"rank":true,"pollingPeriod":1}}"#,
            #"{"canEnter":false,"token":"t","waiting":{"rank":1e17,"pollingPeriod":1}}"#,
            #"{"canEnter":false,"token":"t","waiting":{"rank":1,"pollingPeriod":1,"opensInMs":null}}"#,
            #"{"canEnter":false,"token":"t","waiting":{"rank":1,"pollingPeriod":1,"etaSeconds":1,"etaRange":[1,2,3]}}"#,
            #"{"canEnter":false,"token":"t","waiting":{"rank":1,"pollingPeriod":1,"stock":{"texts":"","remaining":{}}}}"#,
            String(repeating: "[", count: 60_000),
        ]
        for text in texts { XCTAssertThrowsError(try Answer(body: Data(text.utf8)), text) }
    }

    func testRetryAfterIsSecondsOrADateBesideTheDateOfTheReply() {
        let date = "Mon, 05 Jan 2015 10:00:00 GMT"
        XCTAssertEqual(retryAfterMs("7", date: nil), 7_000)
        XCTAssertEqual(retryAfterMs("Mon, 05 Jan 2015 10:00:20 GMT", date: date), 20_000)
        XCTAssertEqual(retryAfterMs("Mon, 05 Jan 2015 09:00:20 GMT", date: date), 0)
        XCTAssertEqual(retryAfterMs("7, 30 ,8", date: nil), 30_000)
        let odd = ["Mon, 5 Jan 2015 10:00:20 GMT", "Tue, 05 Jan 2015 10:00:20 GMT", "Mon, 05 Jan 2015 12:00:20 +0200", "Jan 2099", "7, soon", "7,"]
        for text in ["", "-1", "soon", "1.5", "Mon, 05 Jan"] + odd { XCTAssertEqual(retryAfterMs(text, date: date), 0, text) }
        XCTAssertEqual(retryAfterMs("Mon, 05 Jan 2015 10:00:20 GMT", date: nil), 0)
        XCTAssertEqual(retryAfterMs(nil, date: date), 0)
    }
}
