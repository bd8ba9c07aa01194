// A program that lets another one drive clients over standard input and output. It is used by clients/swift/test.
//
// clients/conformance/driver.mjs describes the lines. With `"do": "example"` it runs the example of the README.

import Foundation
import WeirForms

@testable import Weir

private let output = Locked(FileHandle.standardOutput)

@Sendable private func say(_ id: JSON, _ name: String, _ value: JSON) {
    output.with { $0.write(Data("\(JSON.fields(["id": id, name: value]))\n".utf8)) }
}

/// Texts by key. The changes of the place's text are said; beside it is the key of a first `wait`.
private struct Said: Storage {
    let id: JSON
    let place: String
    private let all: Locked<[String: String]>

    init(id: JSON, place: String, text: String?) {
        (self.id, self.place) = (id, place)
        all = Locked(text.map { [place: $0] } ?? [:])
    }

    func text(for key: String) -> String? {
        all.with { $0[key] }
    }

    func set(_ text: String?, for key: String) {
        all.with { $0[key] = text }
        if key == place { say(id, "stored", text.map(JSON.text) ?? .null) }
    }
}

private var places: [JSON: Place] = [:]
while let line = readLine() {
    let order = try JSON(data: Data(line.utf8))
    guard let id = order["id"] else { continue }
    switch order["do"]?.text {
    case "begin":
        let (server, zone) = (order["server"]?.text ?? "", order["zone"]?.text ?? "")
        let storage = Said(id: id, place: "weir \(server)/ \(zone)", text: order["kept"]?.text)
        let platform = Platform(post: Http.shared.post, storage: storage)
        places[id] = try Place(server: server, zone: zone, platform: platform) { say(id, "state", JSON($0)) }
    case "example":
        let server = order["server"]?.text ?? ""
        // Not on this thread, which reads.
        Task.detached { say(id, "state", JSON(.entered(Place.Entry(pass: try await enter(server), again: false)))) }
    case "leave": places[id]?.leave()
    case "anew": places[id]?.anew()
    case "stop": places[id]?.stop()
    default: break
    }
}
