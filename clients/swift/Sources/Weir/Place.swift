// One place in a line of Weir: takes it, keeps it, and says what happens with it. Rules.swift decides; this file makes the calls.

import Foundation

/// One person's place in one zone. All functions may be called from any thread.
///
/// A place asks until it ends or is stopped. It stops by itself when nobody holds it, or its `states`, any more.
public final class Place: Sendable {
    private let poller: Poller

    /// Resumes this person's place in the zone, or takes one. Make one place for each zone, and share it: two of them ask twice.
    ///
    /// - Parameters:
    ///   - server: the address of Weir, such as `https://weir.example`
    ///   - zone: the zone's id
    ///   - storage: where the place is kept; without it, a place lasts as long as the process
    /// - Throws: `WrongSetup` if `zone` is empty or `server` is not an address of http or https
    public convenience init(server: String, zone: String, storage: (any Storage)? = Defaults()) throws {
        try self.init(server: server, zone: zone, platform: Platform(post: Http.shared.post, storage: storage))
    }

    /// The same for tests, which hear each state.
    init(server: String, zone: String, platform: Platform, hear: @escaping @Sendable (State) -> Void = { _ in }) throws {
        if zone.isEmpty { throw WrongSetup(description: "zone must be a zone's id") }
        let address = server.hasSuffix("/") ? server : server + "/"
        // Some versions of Foundation mend an address with a space.
        guard !address.contains(where: \.isWhitespace), let url = URL(string: address), url.host?.isEmpty == false,
            ["http", "https"].contains(url.scheme?.lowercased())
        else {
            throw WrongSetup(description: "server must be an address such as https://weir.example, not \"\(server)\"")
        }
        poller = Poller(platform: platform, server: url, zone: zone, hear: hear)
        poller.act { $0.ask() }
    }

    deinit {
        stop()
    }

    /// Where the user stands now.
    public var state: State {
        poller.state
    }

    /// The present state, and each new one. A reader who is slow gets only the newest. It ends after `stop()`.
    public var states: AsyncStream<State> {
        // The stream holds the place.
        poller.states { _ = self }
    }

    /// Waits for the entry. Throws `NoEntry` when there is no way on: the place ended or was left, or `stop()` was called.
    public func entry() async throws -> Entry {
        for await state in states {
            switch state {
            case .joining, .waiting: continue
            case .entered(let entry): return entry
            case .ended, .left: throw NoEntry(state: state)
            }
        }
        try Task.checkCancellation()
        throw NoEntry(state: nil)
    }

    /// Takes a new place at the end of the line. It works after `entered`, `ended` and `left`; otherwise nothing happens.
    public func anew() {
        poller.act { $0.anew() }
    }

    /// Gives up the place, or tells Weir after the entry that the user is done.
    public func leave() {
        poller.act { $0.leave() }
    }

    /// Asks no more and says no more. The place stays for the zone's `idle_timeout_s`, and a later start finds it in the storage.
    public func stop() {
        poller.stop()
    }

    /// The user looks at the app again: a poll that is due is sent at once, because timers may be late.
    public func shown() {
        poller.act { $0.shown() }
    }

    /// There may be a network again: if a lost network was the cause of the pause, the client asks at once.
    public func online() {
        poller.act { $0.online() }
    }
}

/// Does what the rules say.
private final class Poller: Sendable {
    private struct Inside {
        var rules: Rules
        /// The running call and timer of each number.
        var tasks: [Int: [Task<Void, Never>]] = [:]
        var lastReader = 0
        var readers: [Int: AsyncStream<Place.State>.Continuation] = [:]
    }

    private let platform: Platform
    private let server: URL
    private let hear: @Sendable (Place.State) -> Void
    private let inside: Locked<Inside>

    init(platform: Platform, server: URL, zone: String, hear: @escaping @Sendable (Place.State) -> Void) {
        (self.platform, self.server, self.hear) = (platform, server, hear)
        inside = Locked(Inside(rules: Rules(platform: platform, server: server.absoluteString, zone: zone)))
    }

    var state: Place.State {
        inside.with { $0.rules.state }
    }

    func states(whileRead hold: @escaping @Sendable () -> Void) -> AsyncStream<Place.State> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { reader in
            let number: Int? = inside.with { inside in
                if inside.rules.isStopped { return nil }
                inside.lastReader += 1
                inside.readers[inside.lastReader] = reader
                reader.yield(inside.rules.state)
                return inside.lastReader
            }
            guard let number else { return reader.finish() }
            reader.onTermination = { [weak self] _ in
                hold()
                _ = self?.inside.with { $0.readers.removeValue(forKey: number) }
            }
        }
    }

    /// Tells the rules what happened, and does what they say. The lock keeps the order of both.
    func act(_ happened: (inout Rules) -> Void) {
        inside.with { inside in
            happened(&inside.rules)
            for order in inside.rules.takeOrders() { perform(order, &inside) }
        }
    }

    func stop() {
        act { $0.stop() }
        // Readers hear their end outside of the lock, which they take, too.
        let readers = inside.with { inside in
            defer { inside.readers = [:] }
            return Array(inside.readers.values)
        }
        for reader in readers { reader.finish() }
    }

    private func perform(_ order: Order, _ inside: inout Inside) {
        switch order {
        case .call(let number, let name, let body):
            inside.tasks[number, default: []].append(Task { [self] in
                let result = await reply(name, body)
                act { $0.answered(number, result) }
            })
        case .wake(let number, let ms):
            inside.tasks[number, default: []].append(Task { [self] in
                do { try await platform.sleep(ms) } catch { return }
                act { $0.woke(number) }
            })
        case .end(let number):
            for task in inside.tasks.removeValue(forKey: number) ?? [] { task.cancel() }
        case .show(let state):
            hear(state)
            for reader in inside.readers.values { reader.yield(state) }
        }
    }

    private func reply(_ name: String, _ body: Body) async -> Result<Reply, any Error> {
        do {
            return .success(try await platform.post(server.appendingPathComponent("traffic/\(name)"), JSONEncoder().encode(body)))
        } catch {
            return .failure(error)
        }
    }
}
