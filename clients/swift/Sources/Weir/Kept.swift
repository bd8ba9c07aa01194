// What the storage holds, as JSON: the same as the other clients.

import Foundation

/// A place.
struct Kept: Codable {
    let token: String
    /// When the server spoke last, by the device's clock.
    let heardMs: Double
    /// What was told last; nil before the first reply.
    var figures: Figures?
    /// Whether the user received the pass.
    var hasEntered = false

    private enum CodingKeys: String, CodingKey {
        case token
        case heardMs = "heard"
        case hasEntered = "entered"
    }

    init(token: String, heardMs: Double, figures: Figures? = nil, hasEntered: Bool = false) {
        (self.token, self.heardMs, self.figures, self.hasEntered) = (token, heardMs, figures, hasEntered)
    }

    init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: CodingKeys.self)
        token = try fields.text(.token, longest: Answer.longestToken)
        // Weir's are of printable ASCII.
        if !token.utf8.allSatisfy((UInt8(ascii: "!")...UInt8(ascii: "~")).contains) { throw Unreadable(what: "no token") }
        heardMs = try fields.decode(Double.self, forKey: .heardMs)
        hasEntered = (try? fields.decode(Bool.self, forKey: .hasEntered)) == true
        // Another version may have other figures. The place counts.
        figures = try? Figures(from: decoder)
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(token, forKey: .token)
        try fields.encode(heardMs, forKey: .heardMs)
        if hasEntered { try fields.encode(true, forKey: .hasEntered) }
        try figures?.encode(to: encoder)
    }

    /// The text for the storage.
    var text: String? {
        (try? JSONEncoder().encode(self)).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The place of a text, or nil if it is not one.
    init?(text: String) {
        guard let found = try? JSONDecoder().decode(Kept.self, from: Data(text.utf8)) else { return nil }
        self = found
    }
}

/// What was told last.
struct Figures {
    let rank: Int
    /// The highest rank so far.
    let first: Int
    /// From 0 to 1; it falls only to 0, before a draw.
    let progress: Double
    /// From the time at which it was told.
    var eta: Estimate?
    let reason: Place.Reason?
    let isStale: Bool
    /// From the time at which it was told.
    var opensMs: Double
    let stock: Place.Stock?
    let isBeyondStock: Bool
}

extension Figures: Codable {
    private enum CodingKeys: String, CodingKey {
        case rank, first, progress, eta, reason, stock
        case isStale = "stale"
        case opensMs = "opens_ms"
        case isBeyondStock = "beyond_stock"
    }

    init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: CodingKeys.self)
        // Whoever can write into the storage may have written anything.
        let told = try fields.count(.rank, from: 1)
        rank = Int(told)
        first = Int(try fields.decodeIfPresent(Double.self, forKey: .first).map { try checked($0) } ?? told)
        progress = try fields.decodeIfPresent(Double.self, forKey: .progress) ?? 0
        guard (0...1).contains(progress) else { throw Unreadable(what: "not a share") }
        eta = try fields.decodeIfPresent([Double].self, forKey: .eta).map { range in
            // A told wait counts down, also below 0 and by parts of a second.
            guard range.count == 3, range.allSatisfy((-mostCount...mostCount).contains), range[0] <= range[2] else {
                throw Unreadable(what: "not a range")
            }
            return Estimate(low: range[0], seconds: range[1], high: range[2])
        }
        reason = try fields.decodeIfPresent(String.self, forKey: .reason).flatMap(Place.Reason.init(rawValue:))
        isStale = try fields.decodeIfPresent(Bool.self, forKey: .isStale) ?? false
        opensMs = try fields.decodeIfPresent(Double.self, forKey: .opensMs).map { try checked($0) } ?? 0
        stock = try fields.decodeIfPresent(Place.Stock.self, forKey: .stock)
        isBeyondStock = try fields.decodeIfPresent(Bool.self, forKey: .isBeyondStock) ?? false
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(rank, forKey: .rank)
        try fields.encode(first, forKey: .first)
        try fields.encode(progress, forKey: .progress)
        try fields.encodeIfPresent(eta.map { [$0.low, $0.seconds, $0.high] }, forKey: .eta)
        try fields.encodeIfPresent(reason?.rawValue, forKey: .reason)
        try fields.encode(isStale, forKey: .isStale)
        try fields.encode(opensMs, forKey: .opensMs)
        try fields.encodeIfPresent(stock, forKey: .stock)
        try fields.encode(isBeyondStock, forKey: .isBeyondStock)
    }
}
