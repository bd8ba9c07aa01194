// What the client needs from the machine.
//
// Invariant: the other files use only what is passed to them, so tests own the time.

import Dispatch
import Foundation

/// Keeps texts by key. A function may throw. The place then lasts as long as the process.
///
/// The functions are called one after the other, from any thread. They must not call the place, and must not block: the place waits for
/// them.
public protocol Storage: Sendable {
    /// The text under the key, or nil.
    func text(for key: String) throws -> String?

    /// Keeps a text; nil removes it.
    func set(_ text: String?, for key: String) throws
}

/// The texts in `UserDefaults`.
public struct Defaults: Storage {
    private let suite: String?

    /// `suite` names a suite that several processes share, such as an app and its extension. Without it, the app's own defaults are used.
    public init(suite: String? = nil) {
        self.suite = suite
    }

    private var defaults: UserDefaults {
        suite.flatMap(UserDefaults.init(suiteName:)) ?? .standard
    }

    public func text(for key: String) -> String? {
        defaults.string(forKey: key)
    }

    public func set(_ text: String?, for key: String) {
        if let text {
            defaults.set(text, forKey: key)
        } else {
            defaults.removeObject(forKey: key)
        }
    }
}

/// A reply. `header` takes a name in small letters.
struct Reply: Sendable {
    let status: Int
    let header: @Sendable (String) -> String?
    let body: Data
}

/// The most bytes of a reply. Weir's have less than 2,000.
let longestReply = 65_536

/// The machine.
struct Platform: Sendable {
    /// Posts JSON and reads the reply. Throws if there is none, and `Unreadable` if it is longer than `longestReply`. A caller who is
    /// cancelled does not wait for it.
    var post: @Sendable (_ address: URL, _ body: Data) async throws -> Reply
    var storage: (any Storage)?
    /// A clock that never jumps, in milliseconds. It may stand still while the device sleeps.
    var steadyMs: @Sendable () -> Double = { Double(DispatchTime.now().uptimeNanoseconds) / 1e6 }
    /// The device's clock, in milliseconds since 1970. It may be wrong, and may jump.
    var deviceMs: @Sendable () -> Double = { Date().timeIntervalSince1970 * 1_000 }
    /// A number from 0 to less than 1.
    var random: @Sendable () -> Double = { Double.random(in: 0..<1) }
    /// A key that nobody can guess.
    var newKey: @Sendable () -> String = randomKey
    /// Returns after this many milliseconds, or throws when it is cancelled.
    var sleep: @Sendable (_ ms: Double) async throws -> Void = { try await Task.sleep(nanoseconds: UInt64(max(0, $0) * 1e6)) }
}

/// 128 random bits as 32 digits. The system's generator is meant for cryptography.
@Sendable private func randomKey() -> String {
    var system = SystemRandomNumberGenerator()
    return (0..<4).map { _ in
        let digits = String(UInt32.random(in: 0...(.max), using: &system), radix: 16)
        return String(repeating: "0", count: 8 - digits.count) + digits
    }.joined()
}
