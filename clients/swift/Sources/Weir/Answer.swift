// Reads replies. Nothing that a server or a proxy sends is trusted: sizes, types and ranges are checked here, and only here.
//
// Invariant: an `Answer` has the types that it says. Unknown fields are ignored, because a newer server may have them.

import Foundation

/// A reply that Weir would not send.
struct Unreadable: Error {
    let what: String
}

/// What `wait` and `entry` answer.
enum Answer {
    case enters(token: String, pass: String)
    case waits(token: String, Told)
}

/// Place and wait, as a reply tells them.
struct Told {
    let rank: Int
    let eta: Estimate?
    let reason: Place.Reason?
    let isStale: Bool
    let periodMs: Double
    let opensInMs: Double
    let stock: Place.Stock?
    let isBeyondStock: Bool
}

/// The shortest, the expected and the longest wait, in seconds.
struct Estimate: Equatable {
    var low, seconds, high: Double
}

extension Answer: Decodable {
    /// The longest token and the longest pass, in characters.
    static let longestToken = 1_024
    private static let longestPass = 8_192

    private enum CodingKeys: CodingKey { case canEnter, token, pass, waiting }

    /// The answer of a reply. Throws if Weir would not send it.
    init(body: Data) throws {
        self = try JSONDecoder().decode(Answer.self, from: body)
    }

    init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: CodingKeys.self)
        let token = try fields.text(.token, longest: Self.longestToken)
        if try fields.decode(Bool.self, forKey: .canEnter) {
            self = .enters(token: token, pass: try fields.text(.pass, longest: Self.longestPass))
        } else {
            self = .waits(token: token, try fields.decode(Told.self, forKey: .waiting))
        }
    }
}

extension Told: Decodable {
    private enum CodingKeys: CodingKey {
        case rank, etaSeconds, etaRange, reason, stale, pollingPeriod, opensInMs, stock, beyondStock
    }

    init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: CodingKeys.self)
        rank = Int(try fields.count(.rank, from: 1))
        eta = try Self.estimate(fields)
        // A reason that this version does not know still explains a longer wait.
        reason = (try? fields.decode(String.self, forKey: .reason)).map { text in
            Place.Reason(rawValue: text).flatMap { $0 == .unsure ? nil : $0 } ?? .slower
        }
        isStale = (try? fields.decode(Bool.self, forKey: .stale)) == true
        periodMs = periodWithin(try fields.count(.pollingPeriod))
        opensInMs = fields.contains(.opensInMs) ? try fields.count(.opensInMs) : 0
        stock = try fields.decodeIfPresent(Place.Stock.self, forKey: .stock)
        isBeyondStock = (try? fields.decode(Bool.self, forKey: .beyondStock)) == true
    }

    private static func estimate(_ fields: KeyedDecodingContainer<CodingKeys>) throws -> Estimate? {
        guard var range = try? fields.nestedUnkeyedContainer(forKey: .etaRange) else { return nil }
        let (low, high) = (try checked(range.decode(Double.self)), try checked(range.decode(Double.self)))
        if !range.isAtEnd || low > high { throw Unreadable(what: "not a range") }
        return Estimate(low: low, seconds: try fields.count(.etaSeconds), high: high)
    }
}

extension Place.Stock: Codable {
    /// The most tiers of a zone, and the longest name of the texts, in characters.
    private static let mostTiers = 16
    private static let longestName = 64

    private enum CodingKeys: CodingKey { case texts, remaining }

    public init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: CodingKeys.self)
        texts = try fields.text(.texts, longest: Self.longestName)
        let tiers = try fields.decode([String: Double?].self, forKey: .remaining)
        if tiers.count > Self.mostTiers { throw Unreadable(what: "too many tiers") }
        remaining = try tiers.mapValues { left in try left.map { Int(try checked($0)) } }
    }

    public func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(texts, forKey: .texts)
        try fields.encode(remaining, forKey: .remaining)
    }
}

/// The largest whole number that JSON's readers agree on: 2^53 - 1.
let mostCount = 9_007_199_254_740_991.0

/// A whole number from `least` on.
func checked(_ number: Double, from least: Double = 0) throws -> Double {
    if !(least...mostCount).contains(number) || number != number.rounded() { throw Unreadable(what: "not a count") }
    return number
}

extension KeyedDecodingContainer {
    /// A rank is from 1: the first one in the line has that.
    func count(_ key: Key, from least: Double = 0) throws -> Double {
        try checked(decode(Double.self, forKey: key), from: least)
    }

    func text(_ key: Key, longest: Int) throws -> String {
        let text = try decode(String.self, forKey: key)
        if text.isEmpty || text.utf16.count > longest { throw Unreadable(what: "not a text of the right length") }
        return text
    }
}
