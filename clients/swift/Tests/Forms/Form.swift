@testable import Weir

extension JSON {
    /// A state in the form of the cases, which is that of the client for JavaScript.
    public init(_ state: Place.State) {
        var fields: [String: JSON] = ["trouble": JSON(state.trouble)]
        switch state {
        case .joining: fields["kind"] = .text("joining")
        case .waiting(let waiting):
            fields.merge([
                "kind": .text("waiting"),
                "rank": .number(waiting.rank),
                "eta": waiting.eta.map { ["low": .number($0.low), "seconds": .number($0.seconds), "high": .number($0.high)] }.map(JSON.fields) ?? .null,
                "progress": .number(waiting.progress),
                "reason": waiting.reason.map { .text($0.rawValue) } ?? .null,
                "stale": .bool(waiting.isStale),
                "opensInMs": .number(waiting.opensInMs),
                "stock": waiting.stock.map(JSON.init) ?? .null,
                "beyondStock": .bool(waiting.isBeyondStock),
            ]) { $1 }
        case .entered(let entry): fields.merge(["kind": .text("entered"), "pass": .text(entry.pass), "again": .bool(entry.again)]) { $1 }
        case .ended: fields["kind"] = .text("ended")
        case .left: fields["kind"] = .text("left")
        }
        self = .fields(fields)
    }

    private init(_ stock: Place.Stock) {
        let remaining = stock.remaining.mapValues { left in left.map { JSON.number($0) } ?? .null }
        self = .fields(["texts": .text(stock.texts), "remaining": .fields(remaining)])
    }

    private init(_ trouble: Trouble?) {
        guard let trouble else {
            self = .null
            return
        }
        let actions: [Trouble.Action: String] = [.retry: "retry", .newPlace: "new place", .giveUp: "give up"]
        self = .fields([
            "code": .text(trouble.code),
            "title": .text(trouble.title),
            "detail": .text(trouble.detail),
            "action": .text(actions[trouble.action] ?? "?"),
            "retryMs": .number(trouble.retryMs),
            "page": .text(trouble.page),
        ])
    }

    private static func number(_ whole: Int) -> JSON { .number(Double(whole)) }
}
