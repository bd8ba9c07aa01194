// What a place says.

extension Place {
    /// Where the user stands.
    public enum State: Sendable, Hashable {
        /// The user has no place yet. `trouble` is what went wrong, or nil.
        case joining(trouble: Trouble?)
        /// The user waits.
        case waiting(Waiting)
        /// The user may enter.
        case entered(Entry)
        /// There is no way on: the place is lost, or something must change. `Trouble.action` says which.
        case ended(Trouble)
        /// The user gave up the place, or ended the visit.
        case left

        /// What went wrong, or nil.
        public var trouble: Trouble? {
            switch self {
            case .joining(let trouble): return trouble
            case .waiting(let waiting): return waiting.trouble
            case .ended(let trouble): return trouble
            case .entered, .left: return nil
            }
        }
    }

    /// The user waits.
    public struct Waiting: Sendable, Hashable {
        /// From 1.
        public let rank: Int
        /// Nil: nobody knows, because the zone lets nobody in.
        public let eta: Eta?
        /// From 0 to 1. It never falls, but for a draw: it is 0 until the order is drawn.
        public let progress: Double
        /// Why the wait is unknown or longer than before.
        public let reason: Reason?
        /// The store does not answer. The figures are the last known ones.
        public let isStale: Bool
        /// How long it is until the zone opens, in milliseconds from now; 0 if it is open.
        public let opensInMs: Int
        /// What is left, where the operators tell it.
        public let stock: Stock?
        /// Everything may be sold out before it is the user's turn.
        public let isBeyondStock: Bool
        /// The last call failed. The place is kept, and the client asks again.
        public let trouble: Trouble?
    }

    /// The expected wait from now, in seconds. The real wait is within the range in nine of ten cases.
    public struct Eta: Sendable, Hashable {
        public let low, seconds, high: Int
    }

    /// Why the wait is longer than before, or not known. docs/app/polling.md describes each.
    public enum Reason: String, Sendable, Hashable {
        case held, draw, slowed, interrupted, returned, slower
        /// Only the end of the range became later.
        case unsure
    }

    /// What is left.
    public struct Stock: Sendable, Hashable {
        /// The name of the labels and prices that belong to it.
        public let texts: String
        /// How many pieces, by tier; nil for a tier of which nobody knows.
        public let remaining: [String: Int?]
    }

    /// The user may enter.
    public struct Entry: Sendable, Hashable {
        /// The proof for your service.
        public let pass: String
        /// This app received the pass before. It may be used up: let the user decide between it and a new place.
        public let again: Bool
    }
}

/// Why `Place.entry()` came to nothing.
public struct NoEntry: Error, Sendable, CustomStringConvertible {
    /// The state without a way on, or nil after `Place.stop()`.
    public let state: Place.State?

    public var description: String {
        switch state {
        case .ended(let trouble)?: return "\(trouble.code): \(trouble.detail.isEmpty ? trouble.title : trouble.detail)"
        case nil: return "stopped"
        default: return "left"
        }
    }
}

/// A place cannot be taken with this address or this zone.
public struct WrongSetup: Error, Sendable, CustomStringConvertible {
    public let description: String
}
