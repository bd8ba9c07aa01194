// Every case of clients/conformance in virtual time with many random numbers, where each time is judged exactly.

import WeirForms
import XCTest

@testable import Weir

final class ConformanceTests: XCTestCase {
    private static let seeds: ClosedRange<UInt64> = 1...25

    func testEveryCaseInVirtualTime() throws {
        let cases = try readCases()
        XCTAssertGreaterThan(cases.count, 30)
        for one in cases {
            for seed in Self.seeds {
                var world = try World(one, seed: seed)
                let faults = try world.play()
                XCTAssertEqual(faults, [], "\(one["name"]?.text ?? "?"), seed \(seed)")
            }
        }
    }
}
