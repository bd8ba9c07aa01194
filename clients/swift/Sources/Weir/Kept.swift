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
        token = try fields.decode(String.self, forKey: .token)
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
        func number(_ key: CodingKeys, within range: ClosedRange<Double>) throws -> Double? {
            guard let found = try fields.decodeIfPresent(Double.self, forKey: key) else { return nil }
            guard range.contains(found) else { throw Unreadable(what: "not a number that was written") }
            return found
        }
        guard let told = try number(.rank, within: 0...mostCount) else { throw Unreadable(what: "no rank") }
        rank = Int(told)
        first = Int(try number(.first, within: 0...mostCount) ?? told)
        progress = try number(.progress, within: 0...1) ?? 0
        // A told wait counts down, also below 0.
        let range = try fields.decodeIfPresent([Double].self, forKey: .eta)
        guard range?.allSatisfy({ (-mostCount...mostCount).contains($0) }) != false else { throw Unreadable(what: "not a wait") }
        eta = range.flatMap { $0.count == 3 ? Estimate(low: $0[0], seconds: $0[1], high: $0[2]) : nil }
        reason = try fields.decodeIfPresent(String.self, forKey: .reason).flatMap(Place.Reason.init(rawValue:))
        isStale = try fields.decodeIfPresent(Bool.self, forKey: .isStale) ?? false
        opensMs = try number(.opensMs, within: 0...mostCount) ?? 0
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
