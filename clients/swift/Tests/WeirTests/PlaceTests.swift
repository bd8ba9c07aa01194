import WeirForms
import XCTest

@testable import Weir

/// A network of which a test says the replies, in real time.
private final class Network: Sendable {
    private let inside: Locked<(replies: [String], bodies: [JSON])>

    /// The replies, one after the other. After the last one, there are none.
    init(_ replies: [String]) {
        inside = Locked((replies, []))
    }

    var bodies: [JSON] { inside.with { $0.bodies } }

    func platform(_ storage: (any Storage)? = nil) -> Platform {
        Platform(
            post: { _, body in
                let next = try self.inside.with { inside in
                    inside.bodies.append(try JSON(data: body))
                    return inside.replies.isEmpty ? nil : inside.replies.removeFirst()
                }
                if let next { return Reply(status: 200, header: { _ in nil }, body: Data(next.utf8)) }
                try await Task.sleep(nanoseconds: 60_000_000_000)
                throw URLError(.timedOut)
            },
            storage: storage
        )
    }
}

private let entered = #"{"canEnter":true,"token":"t","pass":"p"}"#
private let waiting = #"{"canEnter":false,"token":"t","waiting":{"rank":2,"pollingPeriod":100,"etaRange":null}}"#

private struct Broken: Storage {
    func text(for key: String) throws -> String? { throw CocoaError(.fileReadUnknown) }

    func set(_ text: String?, for key: String) throws { throw CocoaError(.fileWriteUnknown) }
}

/// It has a place of long ago, and takes nothing.
private struct ReadOnly: Storage {
    func text(for key: String) throws -> String? { #"{"token":"old","heard":1}"# }

    func set(_ text: String?, for key: String) throws { throw CocoaError(.fileWriteUnknown) }
}

final class PlaceTests: XCTestCase {
    private func place(_ platform: Platform) throws -> Place {
        try Place(server: "https://weir.test", zone: "Z", platform: platform)
    }

    func testEntryReturnsThePassAndSaysWhyThereIsNone() async throws {
        let place = try place(Network([waiting, entered]).platform())
        let entry = try await place.entry()
        XCTAssertEqual(entry, Place.Entry(pass: "p", again: false))
        place.leave()
        await assertNoEntry(place, .left)
    }

    func testStatesBeginWithThePresentOneAndEndWithTheStop() async throws {
        let place = try place(Network([waiting]).platform())
        var kinds: [JSON?] = []
        for await state in place.states {
            kinds.append(JSON(state)["kind"])
            if case .waiting = state { place.stop() }
        }
        XCTAssertEqual(kinds.last, .text("waiting"))
        await assertNoEntry(place, nil)
    }

    func testAPlaceThatNobodyHoldsAsksNoMore() async throws {
        let network = Network([waiting, waiting])
        var place: Place? = try self.place(network.platform())
        weak var held = place
        var states = place?.states.makeAsyncIterator()
        place = nil
        while case .joining? = await states?.next() {}
        XCTAssertNotNil(held, "whoever reads the states holds the place")
        states = nil
        XCTAssertNil(held)
    }

    func testAnEntryThatIsCancelledThrows() async throws {
        let place = try place(Network([]).platform())
        let waiter = Task { try await place.entry() }
        waiter.cancel()
        do {
            _ = try await waiter.value
            XCTFail("it entered")
        } catch {
            XCTAssert(error is CancellationError, "\(error)")
        }
    }

    func testAStorageThatFailsTakesNoPlaceAway() async throws {
        let entry = try await place(Network([waiting, entered]).platform(Broken())).entry()
        XCTAssertEqual(entry.pass, "p")
    }

    func testAStorageThatCanBeReadOnlyIsNotAskedAgainAndAgain() async throws {
        let calls = Locked(0)
        let platform = Platform(
            post: { _, body in
                let count = calls.with { count in
                    count += 1
                    return count
                }
                guard count < 10 else { throw URLError(.timedOut) }
                let isOld = String(decoding: body, as: UTF8.self).contains("\"old\"")
                let text = isOld ? #"{"type":"urn:weir:problem:gone","code":"gone"}"# : entered
                return Reply(status: isOld ? 410 : 200, header: { _ in nil }, body: Data(text.utf8))
            },
            storage: ReadOnly()
        )
        let entry = try await place(platform).entry()
        XCTAssertEqual(entry.pass, "p")
        XCTAssertEqual(calls.with { $0 }, 2)
    }

    func testASetupThatCannotBeRightIsRefused() throws {
        for server in ["weir.test", "ftp://weir.test", "http://", "http://a b", "", "https:weir.test"] {
            XCTAssertThrowsError(try Place(server: server, zone: "Z", storage: nil), server) { XCTAssert($0 is WrongSetup) }
        }
        XCTAssertThrowsError(try Place(server: "https://weir.test", zone: "", storage: nil))
    }

    func testTheDefaultsKeepAndForgetTexts() {
        let defaults = Defaults(suite: "weir.test")
        defaults.set("a", for: "weir https://weir.test/ Z")
        XCTAssertEqual(defaults.text(for: "weir https://weir.test/ Z"), "a")
        defaults.set(nil, for: "weir https://weir.test/ Z")
        XCTAssertNil(defaults.text(for: "weir https://weir.test/ Z"))
    }

    private func assertNoEntry(_ place: Place, _ state: Place.State?) async {
        do {
            _ = try await place.entry()
            XCTFail("it entered")
        } catch {
            XCTAssertEqual((error as? NoEntry)?.state, state)
        }
    }
}
