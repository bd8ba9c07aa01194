import Weir

func enter(_ server: String) async throws -> String {
    let place = try Place(server: server, zone: "TEST_ZONE")
    let showing = Task {
        for await state in place.states {
            if case .waiting(let waiting) = state { print("place \(waiting.rank), about \(waiting.eta?.seconds.description ?? "?") s") }
            if let trouble = state.trouble { print("\(trouble.code): trying again in \(trouble.retryMs) ms") }
        }
    }
    defer { showing.cancel() }
    return try await place.entry().pass // throws NoEntry when there is no way on: the place is gone, or the zone does not exist
}
